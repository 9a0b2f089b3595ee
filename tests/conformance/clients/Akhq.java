import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import org.sourcelab.kafka.connect.apiclient.Configuration;
import org.sourcelab.kafka.connect.apiclient.KafkaConnectClient;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorPlugin;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorPluginConfigDefinition;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorPluginConfigValidationResults;
import org.sourcelab.kafka.connect.apiclient.request.dto.ConnectorStatus;
import org.sourcelab.kafka.connect.apiclient.request.dto.NewConnectorDefinition;
import org.sourcelab.kafka.connect.apiclient.rest.exceptions.ConcurrentConfigModificationException;
import org.sourcelab.kafka.connect.apiclient.rest.exceptions.ResourceNotFoundException;

/** AKHQ's calls of a Connect cluster, through the client library that it uses: URL, a connector's name, its file. */
public class Akhq {
    private static final String FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector";
    private static final Map<String, Object> RESULTS = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        KafkaConnectClient client = new KafkaConnectClient(new Configuration(arguments[0]));
        String name = arguments[1];
        Map<String, String> config = new TreeMap<>(Map.of(
            "connector.class", FILE_SOURCE, "tasks.max", "1", "file", arguments[2], "topic", arguments[3]));

        note("version", () -> client.getConnectServerVersion().getVersion());
        note("plugin", () -> {
            ConnectorPlugin found = client.getConnectorPlugins().stream()
                .filter(each -> each.getClassName().equals(FILE_SOURCE)).findFirst().orElseThrow();
            return List.of(found.getClassName(), found.getType());
        });
        // The page of a new connector validates every plugin that is listed, with two properties; one refusal and it stays empty.
        note("unreadable", () -> client.getConnectorPlugins().stream().map(ConnectorPlugin::getClassName).filter(plugin -> {
            ConnectorPluginConfigValidationResults results = client.validateConnectorPluginConfig(
                new ConnectorPluginConfigDefinition(plugin, Map.of("connector.class", plugin, "topics", "getPlugins")));
            return results.getErrorCount() == 0 || results.getConfigs().stream().anyMatch(
                each -> each.getDefinition() != null && (each.getDefinition().getType() == null
                    || each.getDefinition().getImportance() == null || each.getValue() == null));
        }).toList());
        note("create", () -> client.addConnector(NewConnectorDefinition.newBuilder()
            .withName(name).withConfig(config).build()).getConfig());
        note("exists", () -> client.addConnector(NewConnectorDefinition.newBuilder()
            .withName(name).withConfig(config).build()).getName());
        status(client, name, "running", "RUNNING");
        note("definition", () -> List.of(client.getConnector(name).getType(), client.getConnector(name).getTasks().size()));
        note("names", () -> client.getConnectors().contains(name));
        note("all", () -> {
            var found = client.getConnectorsWithAllExpandedMetadata();
            return List.of(found.getAllDefinitions().stream().anyMatch(each -> each.getName().equals(name)),
                found.getAllStatuses().stream().anyMatch(each -> each.getName().equals(name)));
        });
        note("task", () -> client.getConnectorTaskStatus(name, 0).getState());
        note("tasks", () -> client.getConnectorTasks(name).iterator().next().getId().getTask());
        note("update", () -> client.updateConnectorConfig(name, config).getName());
        status(client, name, "running again", "RUNNING");
        note("restart", () -> client.restartConnector(name));
        status(client, name, "restarted", "RUNNING");
        note("restart task", () -> client.restartConnectorTask(name, 0));
        status(client, name, "task restarted", "RUNNING");
        note("pause", () -> client.pauseConnector(name));
        status(client, name, "paused", "PAUSED");
        note("resume", () -> client.resumeConnector(name));
        status(client, name, "resumed", "RUNNING");
        note("topics", () -> client.getConnectorTopics(name).getTopics());
        note("delete", () -> client.deleteConnector(name));
        note("gone", () -> client.getConnector(name).getName());
        System.out.println(new ObjectMapper().writeValueAsString(RESULTS));
    }

    /** What a call returns, or what it throws; conflicts are tried again, as AKHQ does. */
    private static void note(String call, Callable<Object> asked) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                RESULTS.put(call, asked.call());
                return;
            } catch (ConcurrentConfigModificationException error) {
                if (error.getMessage().contains("already exists")) {
                    RESULTS.put(call, error.getMessage());
                    return;
                }
                if (attempt == 100) {
                    throw error;
                }
                Thread.sleep(100);
            } catch (ResourceNotFoundException error) {
                RESULTS.put(call, error.getMessage());
                return;
            }
        }
    }

    private static void status(KafkaConnectClient client, String name, String call, String wanted) throws Exception {
        for (int attempt = 0; attempt < 300; attempt++) {
            try {
                ConnectorStatus status = client.getConnectorStatus(name);
                if (wanted.equals(status.getConnector().get("state")) && status.getTasks().size() == 1
                    && wanted.equals(status.getTasks().get(0).getState())) {
                    RESULTS.put(call, List.of(status.getName(), status.getType(), status.getTasks().get(0).getId()));
                    return;
                }
            } catch (ResourceNotFoundException | ConcurrentConfigModificationException error) {
                // Kafka's worker knows no status just after the connector was created.
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException(call + ": " + name + " is not " + wanted);
    }
}
