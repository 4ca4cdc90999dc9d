import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Arguments: SERVERS TABLE write|scan ROWS THREADS. Runs a plain loop over HBase's own client twice in one JVM. Prints
 * the elapsed seconds and the CPU seconds of each round.
 */
public class Throughput {
  static final byte[] FAMILY = Bytes.toBytes("info0"), QUALIFIER = Bytes.toBytes("0");
  static final int VALUE_BYTES = 200, ROWS_PER_RESPONSE = 1000, ROUNDS = 2;

  public static void main(String[] a) throws Exception {
    TableName table = TableName.valueOf(a[1]);
    boolean writes = a[2].equals("write");
    long rows = Long.parseLong(a[3]);
    int threads = Integer.parseInt(a[4]);
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
    conf.set("hbase.client.bootstrap.servers", a[0]);
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      for (int round = 0; round < ROUNDS; round++) {
        long begun = System.nanoTime(), cpu = cpuNs();
        List<Callable<Void>> tasks = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
          long from = rows * t / threads, to = rows * (t + 1) / threads;
          tasks.add(() -> {
            if (writes) write(connection, table, to - from, rows);
            else scan(connection, table, from, to);
            return null;
          });
        }
        for (Future<Void> done : pool.invokeAll(tasks)) done.get();
        System.out.println((System.nanoTime() - begun) / 1e9 + " " + (cpuNs() - cpu) / 1e9);
      }
    } finally {
      pool.shutdown();
    }
  }

  static long cpuNs() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }

  static byte[] key(long row) {
    byte[] key = new byte[26];
    for (int i = key.length - 1; i >= 0; i--, row /= 10) key[i] = (byte) ('0' + row % 10);
    return key;
  }

  static byte[] value() {
    byte[] value = new byte[VALUE_BYTES];
    for (int i = 0; i < value.length; i += 8) {
      java.util.Arrays.fill(value, i, i + 8, (byte) ThreadLocalRandom.current().nextInt('A', 'Z' + 1));
    }
    return value;
  }

  static void write(Connection connection, TableName table, long count, long rows) throws Exception {
    try (BufferedMutator mutator = connection.getBufferedMutator(table)) {
      for (long i = 0; i < count; i++) {
        Put put = new Put(key(ThreadLocalRandom.current().nextLong(rows)));
        mutator.mutate(put.addColumn(FAMILY, QUALIFIER, value()));
      }
    }
  }

  static void scan(Connection connection, TableName table, long from, long to) throws Exception {
    Scan scan = new Scan().withStartRow(key(from)).withStopRow(key(to)).addColumn(FAMILY, QUALIFIER);
    long count = 0, bytes = 0;
    try (Table open = connection.getTable(table);
        ResultScanner scanner = open.getScanner(scan.setCaching(ROWS_PER_RESPONSE))) {
      for (Result result : scanner) {
        count++;
        bytes += result.rawCells()[0].getValueLength();
      }
    }
    if (count != to - from || bytes != count * VALUE_BYTES) throw new IllegalStateException("rows or bytes differ from those written");
  }
}
