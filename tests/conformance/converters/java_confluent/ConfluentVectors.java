import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import io.confluent.connect.json.JsonSchemaData;
import io.confluent.connect.json.JsonSchemaDataConfig;
import io.confluent.connect.protobuf.ProtobufData;
import io.confluent.connect.protobuf.ProtobufDataConfig;
import io.confluent.kafka.schemaregistry.json.JsonSchema;
import io.confluent.kafka.schemaregistry.json.jackson.Jackson;
import io.confluent.kafka.schemaregistry.protobuf.MessageIndexes;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.serializers.protobuf.ProtobufSchemaAndValue;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Answers for Confluent's JsonSchemaData and ProtobufData what ConverterVectors answers for Kafka's own converters.
 *
 * <p>Their jars are not in Maven Central: whoever records the vectors brings a class path with them.
 */
public class ConfluentVectors {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = MAPPER.readTree(line);
            ObjectNode answer = MAPPER.createObjectNode();
            try {
                answer(request, answer);
            } catch (Exception | StackOverflowError error) {
                answer.removeAll();
                answer.put("error", error.getClass().getSimpleName());
            }
            out.println(MAPPER.writeValueAsString(answer));
        }
        out.flush();
    }

    private static void answer(JsonNode request, ObjectNode answer) throws Exception {
        Map<String, Object> config = new HashMap<>();
        if (request.has("config")) {
            request.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        }
        Schema schema = ConverterVectors.schema(request.get("schema"));
        switch (request.get("op").asText()) {
            case "jsonschema": {
                JsonSchemaData data = new JsonSchemaData(new JsonSchemaDataConfig(config));
                JsonSchema text = data.fromConnectSchema(schema);
                JsonNode value = data.fromConnectData(schema, ConverterVectors.value(schema, request.get("value")));
                answer.put("text", text == null ? null : text.canonicalString());
                put(answer, value == null ? null : Jackson.newObjectMapper().writeValueAsBytes(value));
                break;
            }
            case "jsonschema_read": {
                JsonSchemaData data = new JsonSchemaData(new JsonSchemaDataConfig(config));
                Schema read = data.toConnectSchema(new JsonSchema(request.get("text").asText()));
                JsonNode tree = Jackson.newObjectMapper().readTree(Base64.getDecoder().decode(request.get("data").asText()));
                describe(answer, read, data.toConnectData(read, tree));
                break;
            }
            case "protobuf": {
                ProtobufData data = new ProtobufData(new ProtobufDataConfig(config));
                ProtobufSchemaAndValue made = data.fromConnectData(schema, ConverterVectors.value(schema, request.get("value")));
                ProtobufSchema text = made.getSchema();
                answer.put("text", text.canonicalString());
                answer.put("name", text.name());
                if (made.getValue() == null) {
                    put(answer, null);
                    break;
                }
                Message message = (Message) made.getValue();
                byte[] head = text.toMessageIndexes(message.getDescriptorForType().getFullName()).toByteArray();
                byte[] body = message.toByteArray();
                put(answer, ByteBuffer.allocate(head.length + body.length).put(head).put(body).array());
                break;
            }
            case "protobuf_read": {
                ProtobufData data = new ProtobufData(new ProtobufDataConfig(config));
                ProtobufSchema text = new ProtobufSchema(request.get("text").asText());
                ByteBuffer buffer = ByteBuffer.wrap(Base64.getDecoder().decode(request.get("data").asText()));
                MessageIndexes indexes = MessageIndexes.readFrom(buffer);
                ProtobufSchema of = text.copy(text.toMessageName(indexes));
                Descriptor descriptor = of.toDescriptor();
                byte[] rest = new byte[buffer.remaining()];
                buffer.get(rest);
                SchemaAndValue read = data.toConnectData(of, DynamicMessage.parseFrom(descriptor, rest));
                describe(answer, read.schema(), read.value());
                break;
            }
            default:
                throw new IllegalArgumentException(request.get("op").asText());
        }
    }

    private static void put(ObjectNode answer, byte[] data) {
        answer.put("bytes", data == null ? null : Base64.getEncoder().encodeToString(data));
    }

    private static void describe(ObjectNode answer, Schema schema, Object value) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("converter.type", "value", "replace.null.with.default", "false"), false);
        put(answer, converter.fromConnectData("topic", schema, value));
    }
}
