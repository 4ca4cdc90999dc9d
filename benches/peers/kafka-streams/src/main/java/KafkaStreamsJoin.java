import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Joins each activation with the last click of its device in the 7 days before it, in Kafka Streams. Processes the
 * records that both topics have at its start, prints a line with the version, and exits at the end of its input.
 *
 * <p>usage: KafkaStreamsJoin BROKERS CLICKS ACTIVATIONS OUT FOLDER. OUT gets records with the event_id of an activation
 * as the key, and its click_id as the value, no value without a click. The last record of a key counts.
 */
public final class KafkaStreamsJoin {
    /** A click at the time of the activation does not count. Events may be 7 days late, adtrail's default. */
    private static final JoinWindows WINDOWS = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofDays(7))
            .before(Duration.ofDays(7))
            .after(Duration.ofMillis(-1));

    private static final Serde<Fact> FACTS = json(Fact.class);
    private static final String LAST_CLICKS = "last-clicks";

    private KafkaStreamsJoin() {}

    /** The fields of an event that the join uses. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    record Event(
            @JsonProperty("click_id") String clickId, @JsonProperty("event_id") String eventId, long time, Ids ids) {
        @JsonIgnoreProperties(ignoreUnknown = true)
        record Ids(String oaid) {}
    }

    /** A click or activation as the join stores it under its device id: its click_id or event_id, and its time. */
    record Fact(String id, long time) {}

    /** An activation and one of its clicks, or null. */
    record Match(String activation, Fact click) {}

    public static void main(String[] args) throws Exception {
        String brokers = args[0];
        long total = records(brokers, List.of(args[1], args[2]));
        CountDownLatch hasProcessedAll = new CountDownLatch(1);
        AtomicLong processed = new AtomicLong();
        Runnable count = () -> {
            if (processed.incrementAndGet() == total) {
                hasProcessedAll.countDown();
            }
        };
        KafkaStreams streams = new KafkaStreams(topology(args[1], args[2], args[3], count), settings(brokers, args[4]));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        hasProcessedAll.await();
        // Finishes the record that is being processed, and waits until the results are acknowledged.
        streams.close();
        System.out.printf("Kafka Streams %s, Java %s%n", AppInfoParser.getVersion(), Runtime.version());
        System.in.read();
    }

    private static Topology topology(String clicks, String activations, String out, Runnable count) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(LAST_CLICKS), Serdes.String(), FACTS));
        KStream<String, Fact> clicksByDevice = byDevice(builder, clicks, "clicks", count);
        byDevice(builder, activations, "activations", count)
                .leftJoin(
                        clicksByDevice,
                        (activation, click) -> new Match(activation.id(), click),
                        WINDOWS,
                        StreamJoined.with(Serdes.String(), FACTS, FACTS))
                .processValues(LastClick::new, LAST_CLICKS)
                .selectKey((device, match) -> match.activation())
                .mapValues(match -> match.click() == null ? null : match.click().id())
                .to(out, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    /** The events of a topic by device id. They pass through another topic, because they arrive without a key. */
    private static KStream<String, Fact> byDevice(StreamsBuilder builder, String topic, String name, Runnable count) {
        Consumed<byte[], Event> events = Consumed.with(Serdes.ByteArray(), json(Event.class))
                .withTimestampExtractor((message, partitionTime) -> ((Event) message.value()).time());
        return builder.stream(topic, events)
                .selectKey((key, event) -> event.ids().oaid())
                .mapValues(event -> new Fact(event.clickId() == null ? event.eventId() : event.clickId(), event.time()))
                .repartition(Repartitioned.with(Serdes.String(), FACTS).withName(name))
                .peek((device, fact) -> count.run());
    }

    /** Forwards a match if its click is later than all others of the activation so far. */
    private static final class LastClick implements FixedKeyProcessor<String, Match, Match> {
        private FixedKeyProcessorContext<String, Match> context;
        private KeyValueStore<String, Fact> lastClicks;

        @Override
        public void init(FixedKeyProcessorContext<String, Match> context) {
            this.context = context;
            lastClicks = context.getStateStore(LAST_CLICKS);
        }

        @Override
        public void process(FixedKeyRecord<String, Match> result) {
            Fact click = result.value().click();
            Fact last = lastClicks.get(result.value().activation());
            if (last != null && (click == null || !isBefore(last, click))) {
                return;
            }
            if (click != null) {
                lastClicks.put(result.value().activation(), click);
            }
            context.forward(result);
        }

        /** Ties are broken by the bytes of click_id, as in section 5 of the contract. */
        private static boolean isBefore(Fact last, Fact click) {
            return last.time() < click.time()
                    || last.time() == click.time() && Arrays.compareUnsigned(bytes(last.id()), bytes(click.id())) < 0;
        }

        private static byte[] bytes(String id) {
            return id.getBytes(StandardCharsets.UTF_8);
        }
    }

    private static long records(String brokers, List<String> topics) {
        Map<String, Object> settings = Map.of("bootstrap.servers", brokers);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> partitions = topics.stream()
                    .flatMap(topic -> consumer.partitionsFor(topic).stream())
                    .map(partition -> new TopicPartition(partition.topic(), partition.partition()))
                    .toList();
            return sum(consumer.endOffsets(partitions).values())
                    - sum(consumer.beginningOffsets(partitions).values());
        }
    }

    private static long sum(Collection<Long> offsets) {
        return offsets.stream().mapToLong(Long::longValue).sum();
    }

    /** All processors; otherwise the defaults, with RocksDB stores that are logged to Kafka. */
    private static Properties settings(String brokers, String folder) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "bench-kafka-streams");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, Runtime.getRuntime().availableProcessors());
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    private static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = new ObjectMapper().readerFor(type);
        ObjectWriter writer = new ObjectMapper().writerFor(type);
        return Serdes.serdeFrom(
                (topic, value) -> {
                    try {
                        return value == null ? null : writer.writeValueAsBytes(value);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                },
                (topic, bytes) -> {
                    try {
                        return bytes == null ? null : reader.readValue(bytes);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                });
    }
}
