import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.converters.ByteArrayConverter;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;

/**
 * Answers conversions: one JSON request per line on standard input, one JSON answer per line on standard output.
 *
 * <p>A request has an "op" and what it needs; an answer has "bytes" (Base64 or null), "text" or "number", or "error" with the
 * class of the exception. How schemas and values are spelled is described in tests/conformance/converters/spelling.py.
 */
public class ConverterVectors {
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
        switch (request.get("op").asText()) {
            case "json": {
                JsonConverter converter = new JsonConverter();
                converter.configure(config(request), false);
                Schema schema = schema(request.get("schema"));
                put(answer, converter.fromConnectData("topic", schema, value(schema, request.get("value"))));
                break;
            }
            case "json_read": {
                JsonConverter converter = new JsonConverter();
                converter.configure(config(request), false);
                describe(answer, converter.toConnectData("topic", bytes(request.get("data"))));
                break;
            }
            case "string": {
                StringConverter converter = new StringConverter();
                converter.configure(config(request), false);
                Schema schema = schema(request.get("schema"));
                put(answer, converter.fromConnectData("topic", schema, value(schema, request.get("value"))));
                break;
            }
            case "bytearray": {
                ByteArrayConverter converter = new ByteArrayConverter();
                Schema schema = schema(request.get("schema"));
                put(answer, converter.fromConnectData("topic", schema, value(schema, request.get("value"))));
                break;
            }
            case "header": {
                SimpleHeaderConverter converter = new SimpleHeaderConverter();
                Schema schema = schema(request.get("schema"));
                put(answer, converter.fromConnectHeader("topic", "header", schema, value(schema, request.get("value"))));
                break;
            }
            case "header_read":
                describe(answer, new SimpleHeaderConverter().toConnectHeader("topic", "header", bytes(request.get("data"))));
                break;
            case "murmur2":
                answer.put("number", Utils.toPositive(Utils.murmur2(bytes(request.get("data")))));
                break;
            case "double":
                answer.put("text", Double.toString(Double.longBitsToDouble(Long.parseUnsignedLong(request.get("bits").asText(), 16))));
                break;
            case "float":
                answer.put("text", Float.toString(Float.intBitsToFloat(Integer.parseUnsignedInt(request.get("bits").asText(), 16))));
                break;
            case "avro":
                AvroPart.answer(answer, schema(request.get("schema")), request, config(request));
                break;
            case "primitive":
            case "primitive_read":
                primitive(request, answer);
                break;
            case "java":
                answer.put("text", System.getProperty("java.version"));
                break;
            default:
                throw new IllegalArgumentException(request.get("op").asText());
        }
    }

    /** As key, value and header converter: all three must give the same. */
    private static void primitive(JsonNode request, ObjectNode answer) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.connect.converters." + request.get("name").asText() + "Converter");
        Object converter = type.getDeclaredConstructor().newInstance();
        ((Converter) converter).configure(Map.of(), false);
        try {
            if (request.get("op").asText().equals("primitive")) {
                Schema schema = schema(request.get("schema"));
                Object value = value(schema, request.get("value"));
                byte[] data = ((Converter) converter).fromConnectData("topic", schema, value);
                if (!Arrays.equals(data, ((HeaderConverter) converter).fromConnectHeader("topic", "h", schema, value))) {
                    throw new IllegalStateException("headers differ");
                }
                put(answer, data);
            } else {
                describe(answer, ((Converter) converter).toConnectData("topic", bytes(request.get("data"))));
            }
        } catch (DataException error) {
            answer.put("error", error.getClass().getSimpleName());
            answer.put("message", error.getMessage());
        }
    }

    private static Map<String, Object> config(JsonNode request) {
        Map<String, Object> config = new HashMap<>();
        config.put("converter.type", "value");
        if (request.has("config")) {
            request.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        }
        return config;
    }

    private static void put(ObjectNode answer, byte[] data) {
        answer.put("bytes", data == null ? null : Base64.getEncoder().encodeToString(data));
    }

    /** What was read, spelled as JSON with its schema and exact decimals: another converter instance, well tested by then. */
    private static void describe(ObjectNode answer, SchemaAndValue read) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("converter.type", "value", "replace.null.with.default", "false"), false);
        put(answer, converter.fromConnectData("topic", read.schema(), read.value()));
    }

    private static byte[] bytes(JsonNode data) {
        return data == null || data.isNull() ? null : Base64.getDecoder().decode(data.asText());
    }

    static Schema schema(JsonNode spec) {
        if (spec == null || spec.isNull()) {
            return null;
        }
        SchemaBuilder builder;
        switch (spec.get("type").asText()) {
            case "array":
                builder = SchemaBuilder.array(schema(spec.get("values")));
                break;
            case "map":
                builder = SchemaBuilder.map(schema(spec.get("keys")), schema(spec.get("values")));
                break;
            case "struct":
                builder = SchemaBuilder.struct();
                for (JsonNode field : spec.get("fields")) {
                    builder.field(field.get(0).asText(), schema(field.get(1)));
                }
                break;
            case "float":
                builder = SchemaBuilder.float32();
                break;
            case "double":
                builder = SchemaBuilder.float64();
                break;
            default:
                builder = SchemaBuilder.type(Schema.Type.valueOf(spec.get("type").asText().toUpperCase()));
        }
        if (spec.has("optional")) {
            builder.optional();
        }
        if (spec.has("name")) {
            builder.name(spec.get("name").asText());
        }
        if (spec.has("version")) {
            builder.version(spec.get("version").asInt());
        }
        if (spec.has("doc")) {
            builder.doc(spec.get("doc").asText());
        }
        if (spec.has("parameters")) {
            for (JsonNode parameter : spec.get("parameters")) {
                builder.parameter(parameter.get(0).asText(), parameter.get(1).asText());
            }
        }
        if (spec.has("default")) {
            builder.defaultValue(value(builder.build(), spec.get("default")));
        }
        return builder.build();
    }

    static Object value(Schema schema, JsonNode spec) {
        if (spec == null || spec.isNull()) {
            return null;
        }
        if (schema == null) {
            return schemaless(spec);
        }
        if (schema.name() != null) {
            switch (schema.name()) {
                case Decimal.LOGICAL_NAME:
                    return decimal(spec);
                case Date.LOGICAL_NAME:
                    return new java.util.Date(spec.asLong() * 86_400_000L);
                case Time.LOGICAL_NAME:
                case Timestamp.LOGICAL_NAME:
                    return new java.util.Date(spec.asLong());
                default:
            }
        }
        switch (schema.type()) {
            case INT8:
                return (byte) spec.asInt();
            case INT16:
                return (short) spec.asInt();
            case INT32:
                return spec.asInt();
            case INT64:
                return spec.asLong();
            case FLOAT32:
                return Float.intBitsToFloat(Integer.parseUnsignedInt(spec.asText(), 16));
            case FLOAT64:
                return Double.longBitsToDouble(Long.parseUnsignedLong(spec.asText(), 16));
            case BOOLEAN:
                return spec.asBoolean();
            case STRING:
                return spec.asText();
            case BYTES:
                return Base64.getDecoder().decode(spec.asText());
            case ARRAY: {
                List<Object> list = new ArrayList<>();
                for (JsonNode item : spec) {
                    list.add(value(schema.valueSchema(), item));
                }
                return list;
            }
            case MAP: {
                Map<Object, Object> map = new LinkedHashMap<>();
                for (JsonNode entry : spec) {
                    map.put(value(schema.keySchema(), entry.get(0)), value(schema.valueSchema(), entry.get(1)));
                }
                return map;
            }
            default: {
                Struct struct = new Struct(schema);
                for (Field field : schema.fields()) {
                    if (spec.hasNonNull(field.name())) {
                        struct.put(field, value(field.schema(), spec.get(field.name())));
                    }
                }
                return struct;
            }
        }
    }

    private static BigDecimal decimal(JsonNode spec) {
        return new BigDecimal(new BigInteger(spec.get(0).asText()), spec.get(1).asInt());
    }

    private static Object schemaless(JsonNode spec) {
        JsonNode content = spec.get(1);
        switch (spec.get(0).asText()) {
            case "int":
                return content.asLong();
            case "float":
                return Double.longBitsToDouble(Long.parseUnsignedLong(content.asText(), 16));
            case "bool":
                return content.asBoolean();
            case "str":
                return content.asText();
            case "bytes":
                return Base64.getDecoder().decode(content.asText());
            case "list": {
                List<Object> list = new ArrayList<>();
                for (JsonNode item : content) {
                    list.add(value(null, item));
                }
                return list;
            }
            case "dict": {
                Map<Object, Object> map = new LinkedHashMap<>();
                for (JsonNode entry : content) {
                    map.put(value(null, entry.get(0)), value(null, entry.get(1)));
                }
                return map;
            }
            case "decimal":
                return decimal(content);
            default:
                throw new IllegalArgumentException(spec.toString());
        }
    }
}
