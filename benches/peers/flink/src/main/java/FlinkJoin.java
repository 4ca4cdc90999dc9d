import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Joins each activation with the last click of its device in the 7 days before it, in Flink SQL. Reads both topics to
 * their ends, prints a line with the version, and exits at the end of its input.
 *
 * <p>usage: FlinkJoin BROKERS CLICKS ACTIVATIONS OUT FOLDER STATE, where STATE is rocksdb or hashmap. OUT gets a record
 * for each activation: its event_id as the key, the click_id as the value, no value without a click. The last record of
 * a key counts.
 */
public final class FlinkJoin {
    /** Ties are broken by the bytes of click_id, as in section 5 of the contract. */
    private static final String JOIN = """
            INSERT INTO attributed SELECT event_id, click_id FROM (
              SELECT a.event_id, c.click_id, ROW_NUMBER() OVER (
                PARTITION BY a.event_id ORDER BY c.event_time DESC, c.click_id DESC) AS place
              FROM activations AS a LEFT JOIN clicks AS c ON c.device = a.device
                AND c.event_time >= a.event_time - INTERVAL '7' DAY AND c.event_time < a.event_time
            ) WHERE place = 1""";

    /** A topic of events, up to its present end. Events may be 7 days late, as adtrail allows by default. */
    private static final String SOURCE = """
            CREATE TABLE %s (
              %s STRING, `time` BIGINT, ids ROW<oaid STRING>,
              device AS ids.oaid, event_time AS TO_TIMESTAMP_LTZ(`time`, 3),
              WATERMARK FOR event_time AS event_time - INTERVAL '7' DAY
            ) WITH (
              'connector' = 'kafka', 'properties.bootstrap.servers' = '%s', 'topic' = '%s', 'format' = 'json',
              'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')""";

    private static final String SINK = """
            CREATE TABLE attributed (
              event_id STRING, click_id STRING, PRIMARY KEY (event_id) NOT ENFORCED
            ) WITH (
              'connector' = 'upsert-kafka', 'properties.bootstrap.servers' = '%s', 'topic' = '%s',
              'key.format' = 'raw', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY')""";

    private FlinkJoin() {}

    public static void main(String[] args) throws Exception {
        String brokers = args[0];
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.newInstance()
                .inStreamingMode()
                .withConfiguration(settings(args[4], args[5]))
                .build());
        tables.executeSql(SOURCE.formatted("clicks", "click_id", brokers, args[1]));
        tables.executeSql(SOURCE.formatted("activations", "event_id", brokers, args[2]));
        tables.executeSql(SINK.formatted(brokers, args[3]));
        tables.executeSql(JOIN).await();
        System.out.printf("Flink SQL %s, Java %s%n", EnvironmentInformation.getVersion(), Runtime.version());
        System.in.read();
    }

    /** All processors, as much memory for RocksDB as adtrail has by default, and incremental checkpoints. */
    private static Configuration settings(String folder, String state) {
        String processors = String.valueOf(Runtime.getRuntime().availableProcessors());
        return Configuration.fromMap(Map.of(
                "parallelism.default", processors,
                "taskmanager.numberOfTaskSlots", processors,
                "taskmanager.memory.managed.size", "448m",
                "pipeline.object-reuse", "true",
                "state.backend.type", state,
                "state.backend.rocksdb.localdir", folder + "/state",
                "execution.checkpointing.interval", "30s",
                "execution.checkpointing.incremental", "true",
                "execution.checkpointing.dir", "file://" + folder + "/checkpoints"));
    }
}
