package kumiki.ycsb;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.Vector;
import java.util.concurrent.atomic.AtomicBoolean;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisException;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * YCSB's records in a server that speaks Redis's protocol. Each thread has a connection of its own.
 *
 * <table>
 *   <tr><th>property</th><th>default</th><th>what</th></tr>
 *   <tr><td>redis.host</td><td>127.0.0.1</td><td>where to connect</td></tr>
 *   <tr><td>redis.port</td><td>6379</td><td>its port</td></tr>
 *   <tr><td>redis.form</td><td>strings</td><td>how a record lies there, see below</td></tr>
 *   <tr><td>redis.timeout</td><td>20000</td><td>how long a reply may take, in milliseconds</td></tr>
 * </table>
 *
 * <p>The forms: with {@code hashes} a record is a hash under its key. With {@code strings} each of
 * its fields is a string, under {@code {key}field}, so that all of them are in one slot; a record is
 * read by one MGET and written by one MSET.
 *
 * <p>There are no scans: keys have no order there.
 */
public final class RedisBinding extends DB {
  /** Errors are counted by YCSB; the first one is told. */
  private static final AtomicBoolean TOLD = new AtomicBoolean();

  private Jedis redis;
  private boolean hashes;
  private TreeSet<String> names;

  @Override
  public void init() throws DBException {
    Properties properties = getProperties();
    String form = properties.getProperty("redis.form", "strings");
    if (!Set.of("hashes", "strings").contains(form)) {
      throw new DBException("redis.form is hashes or strings, not " + form);
    }
    hashes = form.equals("hashes");
    names = new TreeSet<>();
    int count = Integer.parseInt(properties.getProperty("fieldcount", "10"));
    String prefix = properties.getProperty("fieldnameprefix", "field");
    for (int number = 0; number < count; number++) {
      names.add(prefix + number);
    }
    try {
      redis =
          new Jedis(
              properties.getProperty("redis.host", "127.0.0.1"),
              Integer.parseInt(properties.getProperty("redis.port", "6379")),
              Integer.parseInt(properties.getProperty("redis.timeout", "20000")));
      redis.connect();
    } catch (JedisException error) {
      throw new DBException(error);
    }
  }

  @Override
  public void cleanup() {
    redis.close();
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    List<String> wanted = new ArrayList<>(fields == null ? names : new TreeSet<>(fields));
    try {
      List<String> values =
          hashes ? redis.hmget(key, wanted.toArray(String[]::new)) : redis.mget(keys(key, wanted));
      for (int at = 0; at < wanted.size(); at++) {
        if (values.get(at) != null) {
          result.put(wanted.get(at), new StringByteIterator(values.get(at)));
        }
      }
      return result.isEmpty() ? Status.NOT_FOUND : Status.OK;
    } catch (JedisException error) {
      return failed(error);
    }
  }

  @Override
  public Status scan(
      String table, String key, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    return insert(table, key, values);
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try {
      if (hashes) {
        redis.hset(key, StringByteIterator.getStringMap(values));
      } else {
        List<String> words = new ArrayList<>();
        values.forEach(
            (name, value) -> {
              words.add(field(key, name));
              words.add(value.toString());
            });
        redis.mset(words.toArray(String[]::new));
      }
      return Status.OK;
    } catch (JedisException error) {
      return failed(error);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      if (hashes) {
        redis.del(key);
      } else {
        redis.del(keys(key, new ArrayList<>(names)));
      }
      return Status.OK;
    } catch (JedisException error) {
      return failed(error);
    }
  }

  private static String[] keys(String key, List<String> names) {
    return names.stream().map(name -> field(key, name)).toArray(String[]::new);
  }

  private static String field(String key, String name) {
    return "{" + key + "}" + name;
  }

  private static Status failed(JedisException error) {
    if (TOLD.compareAndSet(false, true)) {
      System.err.println("the first error: " + error);
    }
    return Status.ERROR;
  }
}
