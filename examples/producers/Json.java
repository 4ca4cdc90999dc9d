// A click and the activation that it caused, in JSON, by Kafka's own client. Java 17 or later, and
// the jars of a Kafka, of which the client and its logger are used.
//   $ java -cp "$KAFKA_HOME/libs/*" Json.java
// Set in the environment: KAFKA, CLICKS and ACTIVATIONS, where they are others than these.
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

class Json {
    static final String DEVICE = "9a1c5e70-2b4d-4c8f-a6e3-d17f08b2c945";

    public static void main(String[] args) throws Exception {
        long now = System.currentTimeMillis();
        var strings = new StringSerializer();
        var settings = Map.<String, Object>of("bootstrap.servers", set("KAFKA", "127.0.0.1:9092"));
        try (var producer = new KafkaProducer<>(settings, strings, strings)) {
            var click = """
                {"app": "app-x", "click_id": "java-c-1", "spreadid": 7, "time": %d,
                 "ids": {"oaid": "%s"}}""".formatted(now - 60_000, DEVICE);
            var activation = """
                {"app": "app-x", "event_id": "java-a-1", "time": %d,
                 "ids": {"oaid": "%s"}}""".formatted(now, DEVICE);
            // The app's key is the message's; to wait for the answer is to hear of an error.
            producer.send(new ProducerRecord<>(set("CLICKS", "adtrail.clicks"), "app-x", click))
                .get();
            producer.send(
                new ProducerRecord<>(set("ACTIVATIONS", "adtrail.activations"), "app-x", activation))
                .get();
        }
    }

    static String set(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
