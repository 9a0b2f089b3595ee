// Applies Kafka Connect's and Debezium's own transforms to the records of a JSON document on standard input and prints what
// becomes of them. Run as a single source file: java -cp JARS ApplyTransforms.java < cases.json > results.json
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

public class ApplyTransforms {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final JsonConverter CONVERTER = new JsonConverter();

    interface Stage {
        SourceRecord apply(SourceRecord record);
    }

    static Map<String, Object> under(Map<String, String> config, String prefix) {
        Map<String, Object> own = new HashMap<>();
        config.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                own.put(name.substring(prefix.length()), value);
            }
        });
        return own;
    }

    @SuppressWarnings("unchecked")
    static <T> T make(String name) throws Exception {
        return (T) Class.forName(name).getDeclaredConstructor().newInstance();
    }

    static List<Stage> stages(Map<String, String> config) throws Exception {
        List<Stage> stages = new ArrayList<>();
        for (String alias : config.get("transforms").split(",")) {
            String prefix = "transforms." + alias + ".";
            Transformation<SourceRecord> transformation = make(config.get(prefix + "type"));
            Map<String, Object> own = under(config, prefix);
            Object predicateAlias = own.remove("predicate");
            Object negate = own.remove("negate");
            transformation.configure(own);
            if (predicateAlias == null) {
                stages.add(transformation::apply);
                continue;
            }
            String predicatePrefix = "predicates." + predicateAlias + ".";
            Predicate<SourceRecord> predicate = make(config.get(predicatePrefix + "type"));
            predicate.configure(under(config, predicatePrefix));
            boolean negated = negate != null && Boolean.parseBoolean(negate.toString());
            stages.add(record -> negated ^ predicate.test(record) ? transformation.apply(record) : record);
        }
        return stages;
    }

    static SchemaAndValue read(JsonNode node) throws Exception {
        return node == null || node.isNull() ? SchemaAndValue.NULL : CONVERTER.toConnectData("t", MAPPER.writeValueAsBytes(node));
    }

    static JsonNode write(Schema schema, Object value) throws Exception {
        byte[] bytes = CONVERTER.fromConnectData("t", schema, value);
        return bytes == null ? MAPPER.nullNode() : MAPPER.readTree(bytes);
    }

    static SourceRecord record(JsonNode node) throws Exception {
        SchemaAndValue key = read(node.get("key"));
        SchemaAndValue value = read(node.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode header : node.get("headers")) {
            headers.add(header.get("key").asText(), read(header.get("value")));
        }
        return new SourceRecord(Map.of("p", 1), Map.of("o", 1), node.get("topic").asText(),
            node.get("partition").isNull() ? null : node.get("partition").asInt(), key.schema(), key.value(), value.schema(),
            value.value(), node.get("timestamp").isNull() ? null : node.get("timestamp").asLong(), headers);
    }

    static JsonNode describe(SourceRecord record) throws Exception {
        ObjectNode result = MAPPER.createObjectNode();
        result.put("topic", record.topic());
        result.put("partition", record.kafkaPartition());
        result.put("timestamp", record.timestamp());
        result.set("key", write(record.keySchema(), record.key()));
        result.set("value", write(record.valueSchema(), record.value()));
        ArrayNode headers = result.putArray("headers");
        for (Header header : record.headers()) {
            headers.addObject().put("key", header.key()).set("value", write(header.schema(), header.value()));
        }
        return result;
    }

    static JsonNode error(Throwable problem) {
        // Without the hash codes that Object.toString() prints: they differ from run to run.
        String message = String.valueOf(problem.getMessage()).replaceAll("@[0-9a-f]+", "");
        return MAPPER.createObjectNode().put("error", message).put("class", problem.getClass().getName());
    }

    static JsonNode outcome(List<Stage> stages, JsonNode input) throws Exception {
        SourceRecord current = record(input);
        try {
            for (Stage stage : stages) {
                current = stage.apply(current);
                if (current == null) {
                    return MAPPER.nullNode();
                }
            }
        } catch (Exception problem) {
            return error(problem);
        }
        try {
            return describe(current);
        } catch (Exception problem) {
            return MAPPER.createObjectNode().put("unserializable", String.valueOf(problem.getMessage()));
        }
    }

    static ArrayNode transformed(JsonNode cases) throws Exception {
        ArrayNode results = MAPPER.createArrayNode();
        for (JsonNode each : cases) {
            Map<String, String> config = new HashMap<>();
            each.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
            List<Stage> stages;
            try {
                stages = stages(config);
            } catch (Exception problem) {
                results.add(error(problem));
                continue;
            }
            ArrayNode outcomes = results.addArray();
            for (JsonNode input : each.get("records")) {
                outcomes.add(outcome(stages, input));
            }
        }
        return results;
    }

    static ArrayNode routed(JsonNode expressions) {
        ArrayNode results = MAPPER.createArrayNode();
        for (JsonNode each : expressions) {
            try {
                Pattern pattern = Pattern.compile(each.get("regex").asText());
                ArrayNode row = MAPPER.createArrayNode();
                for (JsonNode input : each.get("inputs")) {
                    var matcher = pattern.matcher(input.asText());
                    row.add(matcher.matches() ? matcher.replaceFirst(each.get("replacement").asText()) : null);
                }
                results.add(row);
            } catch (RuntimeException problem) {
                results.add(error(problem));
            }
        }
        return results;
    }

    static ArrayNode properties(JsonNode texts) throws Exception {
        ArrayNode results = MAPPER.createArrayNode();
        for (JsonNode text : texts) {
            Properties properties = new Properties();
            try {
                properties.load(new StringReader(text.asText()));
                results.add(MAPPER.valueToTree(properties));
            } catch (IllegalArgumentException problem) {
                results.add(error(problem));
            }
        }
        return results;
    }

    // Nanoseconds of CPU that one record takes, once everything is compiled: the best of several rounds.
    static ArrayNode timed(JsonNode cases) throws Exception {
        ArrayNode results = MAPPER.createArrayNode();
        var threads = java.lang.management.ManagementFactory.getThreadMXBean();
        for (JsonNode each : cases) {
            Map<String, String> config = new HashMap<>();
            each.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
            List<Stage> stages = stages(config);
            SourceRecord record = record(each.get("record"));
            int repeat = 100_000;
            long best = Long.MAX_VALUE;
            for (int round = 0; round < 9; round++) {
                long started = threads.getCurrentThreadCpuTime();
                for (int number = 0; number < repeat; number++) {
                    SourceRecord current = record;
                    for (Stage stage : stages) {
                        current = current == null ? null : stage.apply(current);
                    }
                    kept = current;
                }
                best = Math.min(best, threads.getCurrentThreadCpuTime() - started);
            }
            results.add((double) best / repeat);
        }
        return results;
    }

    static volatile SourceRecord kept; // so that no work is optimised away

    public static void main(String[] arguments) throws Exception {
        CONVERTER.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        JsonNode input = MAPPER.readTree(System.in);
        ObjectNode output = MAPPER.createObjectNode();
        if (input.has("timed")) {
            output.set("timed", timed(input.get("timed")));
            MAPPER.writeValue(System.out, output);
            return;
        }
        output.set("transforms", transformed(input.get("transforms")));
        output.set("expressions", routed(input.get("expressions")));
        output.set("properties", properties(input.get("properties")));
        MAPPER.writeValue(System.out, output);
    }
}
