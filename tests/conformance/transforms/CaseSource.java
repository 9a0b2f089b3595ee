// A source connector for the differential tests of transforms, and the transform at the end of each chain.
//
// CaseSource emits the records of one case, which a JSON file describes, and writes a file once each of them has been
// delivered, dropped or refused. CaseSource$Stamp sends what a chain made of a record to one topic of the test's own and tells
// in a header where the record would have gone.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.transforms.Transformation;

public class CaseSource extends SourceConnector {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final ConfigDef OPTIONS = new ConfigDef().define("case", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH,
        "File with the records; the same name with .done says that all of them are through.");

    private Map<String, String> config;

    @Override
    public String version() {
        return "1";
    }

    @Override
    public ConfigDef config() {
        return OPTIONS;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return CaseTask.class;
    }

    @Override
    public void start(Map<String, String> properties) {
        config = properties;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(config);
    }

    @Override
    public void stop() {
    }

    public static class CaseTask extends SourceTask {
        private final JsonConverter converter = new JsonConverter();
        private String file;
        private List<SourceRecord> records;
        private int through = 0;
        private int wanted = 0;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> properties) {
            converter.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
            file = properties.get("case");
            records = new ArrayList<>();
            try {
                for (JsonNode each : MAPPER.readTree(new File(file))) {
                    records.add(record(each, records.size()));
                }
            } catch (Exception problem) {
                throw new ConnectException("the case can't be read: " + file, problem);
            }
            wanted = records.size();
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            if (records == null) {
                Thread.sleep(50);
                return null;
            }
            List<SourceRecord> batch = records;
            records = null;
            return batch;
        }

        @Override
        public synchronized void commitRecord(SourceRecord record, org.apache.kafka.clients.producer.RecordMetadata metadata) {
            through += 1;
            if (through == wanted) {
                try {
                    Files.createFile(Path.of(file + ".done"));
                } catch (java.io.IOException problem) {
                    throw new ConnectException(problem);
                }
            }
        }

        @Override
        public void stop() {
        }

        private SchemaAndValue read(JsonNode node) throws Exception {
            return node == null || node.isNull() ? SchemaAndValue.NULL
                : converter.toConnectData("t", MAPPER.writeValueAsBytes(node));
        }

        private SourceRecord record(JsonNode node, int number) throws Exception {
            SchemaAndValue key = read(node.get("key"));
            SchemaAndValue value = read(node.get("value"));
            ConnectHeaders headers = new ConnectHeaders();
            for (JsonNode header : node.get("headers")) {
                headers.add(header.get("key").asText(), read(header.get("value")));
            }
            return new SourceRecord(Map.of("case", file), Map.of("record", number), node.get("topic").asText(),
                node.get("partition").isNull() ? null : node.get("partition").asInt(), key.schema(), key.value(),
                value.schema(), value.value(), node.get("timestamp").isNull() ? null : node.get("timestamp").asLong(), headers);
        }
    }

    public static class Stamp implements Transformation<SourceRecord> {
        private String topic;
        private String name;

        @Override
        public void configure(Map<String, ?> properties) {
            topic = properties.get("topic").toString();
            name = properties.get("case").toString();
        }

        @Override
        public ConfigDef config() {
            return new ConfigDef()
                .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "Where all records go.")
                .define("case", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "The case's number.");
        }

        @Override
        public SourceRecord apply(SourceRecord record) {
            ObjectNode stamp = MAPPER.createObjectNode().put("case", name);
            stamp.put("record", ((Number) record.sourceOffset().get("record")).intValue());
            stamp.put("topic", record.topic());
            stamp.put("partition", record.kafkaPartition());
            stamp.put("timestamp", record.timestamp());
            Headers headers = record.headers().duplicate().add("stamp", stamp.toString(), Schema.STRING_SCHEMA);
            return record.newRecord(topic, 0, record.keySchema(), record.key(), record.valueSchema(), record.value(),
                record.timestamp(), headers);
        }

        @Override
        public void close() {
        }
    }
}
