import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.converters.CloudEventsConverter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.data.Schema;

/** Answers for Debezium's CloudEventsConverter what ConverterVectors answers for Kafka's own converters. */
public class CloudEventsVectors {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = MAPPER.readTree(line);
            ObjectNode answer = MAPPER.createObjectNode();
            try {
                Map<String, Object> config = new HashMap<>();
                request.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
                CloudEventsConverter converter = new CloudEventsConverter();
                converter.configure(config, false);
                RecordHeaders headers = new RecordHeaders();
                for (JsonNode header : request.get("headers")) {
                    headers.add(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8));
                }
                Schema schema = ConverterVectors.schema(request.get("schema"));
                byte[] data = converter.fromConnectData("topic", headers, schema,
                        ConverterVectors.value(schema, request.get("value")));
                answer.put("bytes", data == null ? null : Base64.getEncoder().encodeToString(data));
            } catch (Exception | StackOverflowError error) {
                answer.removeAll();
                answer.put("error", error.getClass().getSimpleName());
            }
            out.println(MAPPER.writeValueAsString(answer));
        }
        out.flush();
    }
}
