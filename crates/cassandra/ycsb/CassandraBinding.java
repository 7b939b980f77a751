package kumiki.ycsb;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BoundStatementBuilder;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.Vector;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * YCSB's records in Cassandra: one row each, of a text key and text columns, by prepared statements.
 *
 * <p>All threads share one session, as programs do that use the driver well. How many connections
 * that has is a property.
 *
 * <table>
 *   <tr><th>property</th><th>default</th><th>what</th></tr>
 *   <tr><td>cassandra.hosts</td><td>127.0.0.1:9042</td><td>where to connect, by commas</td></tr>
 *   <tr><td>cassandra.keyspace</td><td>ycsb</td><td>made if it is absent</td></tr>
 *   <tr><td>cassandra.replicas</td><td>1</td><td>of a keyspace that is made</td></tr>
 *   <tr><td>cassandra.consistency</td><td>ONE</td><td>of every statement</td></tr>
 *   <tr><td>cassandra.connections</td><td>1</td><td>to each host</td></tr>
 *   <tr><td>cassandra.protocol</td><td>V4</td><td>V4 or V5</td></tr>
 *   <tr><td>cassandra.datacenter</td><td>datacenter1</td><td>where the hosts are</td></tr>
 * </table>
 */
public final class CassandraBinding extends DB {
  private static final String KEY = "y_id";
  private static final Object LOCK = new Object();
  /** Errors are counted by YCSB; the first one is told. */
  private static final AtomicBoolean TOLD = new AtomicBoolean();

  private static CqlSession session;
  private static int users;
  private static ConcurrentHashMap<String, PreparedStatement> statements;

  private TreeSet<String> columns;

  @Override
  public void init() throws DBException {
    Properties properties = getProperties();
    columns = new TreeSet<>();
    int count = Integer.parseInt(properties.getProperty("fieldcount", "10"));
    String prefix = properties.getProperty("fieldnameprefix", "field");
    for (int number = 0; number < count; number++) {
      columns.add(prefix + number);
    }
    synchronized (LOCK) {
      if (users == 0) {
        try {
          session = connect(properties);
          statements = new ConcurrentHashMap<>();
          createTable(properties);
        } catch (RuntimeException error) {
          throw new DBException(error);
        }
      }
      users++;
    }
  }

  private static CqlSession connect(Properties properties) {
    int connections = Integer.parseInt(properties.getProperty("cassandra.connections", "1"));
    DriverConfigLoader settings =
        DriverConfigLoader.programmaticBuilder()
            .withInt(DefaultDriverOption.CONNECTION_POOL_LOCAL_SIZE, connections)
            .withString(
                DefaultDriverOption.PROTOCOL_VERSION, properties.getProperty("cassandra.protocol", "V4"))
            .withString(
                DefaultDriverOption.REQUEST_CONSISTENCY,
                properties.getProperty("cassandra.consistency", "ONE"))
            .withString(
                DefaultDriverOption.LOAD_BALANCING_LOCAL_DATACENTER,
                properties.getProperty("cassandra.datacenter", "datacenter1"))
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(20))
            .build();
    CqlSessionBuilder builder = CqlSession.builder().withConfigLoader(settings);
    for (String host : properties.getProperty("cassandra.hosts", "127.0.0.1:9042").split(",")) {
      int colon = host.lastIndexOf(':');
      int port = Integer.parseInt(host.substring(colon + 1));
      builder.addContactPoint(new InetSocketAddress(host.substring(0, colon), port));
    }
    return builder.build();
  }

  private void createTable(Properties properties) {
    String keyspace = properties.getProperty("cassandra.keyspace", "ycsb");
    String replicas = properties.getProperty("cassandra.replicas", "1");
    session.execute(
        "CREATE KEYSPACE IF NOT EXISTS " + keyspace
            + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': " + replicas + "}");
    session.execute("USE " + keyspace);
    String table = properties.getProperty("table", "usertable");
    session.execute(
        "CREATE TABLE IF NOT EXISTS " + table + " (" + KEY + " text PRIMARY KEY, "
            + String.join(" text, ", columns) + " text)");
  }

  @Override
  public void cleanup() {
    synchronized (LOCK) {
      users--;
      if (users == 0) {
        session.close();
      }
    }
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    Set<String> wanted = fields == null ? columns : new TreeSet<>(fields);
    String text = "SELECT " + String.join(", ", wanted) + " FROM " + table + " WHERE " + KEY + " = ?";
    try {
      Row row = session.execute(prepared(text).bind(key)).one();
      if (row == null) {
        return Status.NOT_FOUND;
      }
      fill(row, wanted, result);
      return Status.OK;
    } catch (RuntimeException error) {
      return failed(error);
    }
  }

  /** The rows behind the key, in the order of tokens, which is the only one that Cassandra has. */
  @Override
  public Status scan(
      String table, String key, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    Set<String> wanted = fields == null ? columns : new TreeSet<>(fields);
    String text =
        "SELECT " + String.join(", ", wanted) + " FROM " + table
            + " WHERE token(" + KEY + ") >= token(?) LIMIT ?";
    try {
      ResultSet rows = session.execute(prepared(text).bind(key, count));
      for (Row row : rows) {
        HashMap<String, ByteIterator> values = new HashMap<>();
        fill(row, wanted, values);
        result.add(values);
      }
      return Status.OK;
    } catch (RuntimeException error) {
      return failed(error);
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    // In Cassandra, to insert and to update is the same.
    return insert(table, key, values);
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    List<String> names = new ArrayList<>(new TreeSet<>(values.keySet()));
    String text =
        "INSERT INTO " + table + " (" + KEY + ", " + String.join(", ", names) + ") VALUES (?"
            + ", ?".repeat(names.size()) + ")";
    try {
      BoundStatementBuilder statement = prepared(text).boundStatementBuilder().setString(0, key);
      for (int at = 0; at < names.size(); at++) {
        statement.setString(at + 1, values.get(names.get(at)).toString());
      }
      session.execute(statement.build());
      return Status.OK;
    } catch (RuntimeException error) {
      return failed(error);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      session.execute(prepared("DELETE FROM " + table + " WHERE " + KEY + " = ?").bind(key));
      return Status.OK;
    } catch (RuntimeException error) {
      return failed(error);
    }
  }

  private static PreparedStatement prepared(String text) {
    // Asked for first, because to compute takes a lock.
    PreparedStatement there = statements.get(text);
    return there != null ? there : statements.computeIfAbsent(text, session::prepare);
  }

  private static void fill(Row row, Set<String> names, Map<String, ByteIterator> values) {
    int at = 0;
    for (String name : names) {
      String value = row.getString(at);
      if (value != null) {
        values.put(name, new StringByteIterator(value));
      }
      at++;
    }
  }

  private static Status failed(RuntimeException error) {
    if (TOLD.compareAndSet(false, true)) {
      System.err.println("the first error: " + error);
    }
    return Status.ERROR;
  }
}
