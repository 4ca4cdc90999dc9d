import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * What HBase's own client does of what examples/throughput.rs does, over the table that that one made:
 * java @tests/support/hbase/jvm.flags -cp "$HOME/.cache/adtrail/hbase/*" examples/throughput/Throughput.java
 * HOST:PORT write|scan ROWS THREADS [ROWS_PER_CALL [ROUNDS]]; a second round is one with a JVM that is warm.
 */
public class Throughput {
  static final TableName TABLE = TableName.valueOf("throughput");
  static final byte[] FAMILY = Bytes.toBytes("d"), QUALIFIER = Bytes.toBytes("q");
  static final long ROWS = 1_000_000;

  static byte[] key(long row) {
    return Bytes.toBytes(String.format("%020d", row));
  }

  /** As Java has no unsigned numbers, by 20 digits of a larger one. */
  static byte[] spread(long row) {
    String step = Long.toUnsignedString(Long.divideUnsigned(-1L, ROWS));
    String product = new java.math.BigInteger(step).multiply(java.math.BigInteger.valueOf(row)).toString();
    return Bytes.toBytes("0".repeat(20 - product.length()) + product);
  }

  public static void main(String[] a) throws Exception {
    long rows = Long.parseLong(a[2]);
    int threads = Integer.parseInt(a[3]), perCall = a.length > 4 ? Integer.parseInt(a[4]) : 1000;
    int rounds = a.length > 5 ? Integer.parseInt(a[5]) : 1;
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
    conf.set("hbase.client.bootstrap.servers", a[0]);
    conf.setInt("hbase.client.max.perrequest.heapsize", 4 << 20);
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      connection.getRegionLocator(TABLE).getAllRegionLocations();
      for (int round = 0; round < rounds; round++) {
        long begun = System.nanoTime();
        double cpu = cpu();
        long[] done = new long[threads];
        List<Thread> running = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
          int thread = t;
          long from = rows * t / threads, to = rows * (t + 1) / threads;
          Thread one = new Thread(() -> {
            try {
              done[thread] = a[1].equals("write") ? write(connection, from, to) : scan(connection, from, to, perCall);
            } catch (Exception e) {
              e.printStackTrace();
            }
          });
          one.start();
          running.add(one);
        }
        for (Thread one : running) one.join();
        long all = java.util.stream.LongStream.of(done).sum();
        double seconds = (System.nanoTime() - begun) / 1e9;
        System.out.printf("java %s %d rows, %d threads, round %d: %.0f rows/s, %.2f CPU-s per million rows%n",
            a[1], all, threads, round, all / seconds, (cpu() - cpu) / (all / 1e6));
      }
    }
  }

  static double cpu() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
  }

  static long write(Connection connection, long from, long to) throws Exception {
    byte[] value = new byte[200];
    java.util.Arrays.fill(value, (byte) 'x');
    try (BufferedMutator mutator = connection.getBufferedMutator(TABLE)) {
      for (long row = from; row < to; row++) {
        mutator.mutate(new Put(spread(row * 7919 % ROWS)).addColumn(FAMILY, QUALIFIER, value));
      }
    }
    return to - from;
  }

  static long scan(Connection connection, long from, long to, int perCall) throws Exception {
    Scan scan = new Scan().withStartRow(spread(from)).withStopRow(spread(to)).addFamily(FAMILY).setCaching(perCall);
    long count = 0, bytes = 0;
    try (Table table = connection.getTable(TABLE); ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        count++;
        bytes += result.rawCells()[0].getValueLength();
      }
    }
    if (bytes != count * 200) throw new IllegalStateException("what was written is read");
    return count;
  }
}
