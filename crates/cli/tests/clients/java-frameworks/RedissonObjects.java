// What Redisson keeps on a server: `RedissonObjects.java PORT`. Says "done" when all is as it should be.
//
// Java runs it from its source: java -cp 'target/peers/redisson/lib/*' RedissonObjects.java PORT

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RMapCache;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RSemaphore;
import org.redisson.api.RSet;
import org.redisson.api.RTopic;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class RedissonObjects {
    static final int THREADS = 8;
    static final int ROUNDS = 25;
    static final int PATIENCE_S = 60;

    static RedissonClient one;
    static RedissonClient other;
    static ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    static int count;

    public static void main(String[] args) {
        try {
            run(Integer.parseInt(args[0]));
        } catch (Throwable error) {
            error.printStackTrace();
            // Threads of the clients would go on.
            System.exit(1);
        }
    }

    static void run(int port) throws Exception {
        one = connect(port);
        other = connect(port);
        locks();
        otherGuards();
        maps();
        queues();
        sets();
        one.shutdown();
        other.shutdown();
        threads.shutdown();
        System.out.println("done");
    }

    static RedissonClient connect(int port) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + port)
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(16);
        return Redisson.create(config);
    }

    static void check(String what, Object found, Object expected) {
        if (!found.equals(expected)) {
            throw new AssertionError(what + ": found " + found + ", expected " + expected);
        }
    }

    /** Calls a function from several threads, many times each, and returns what it returned. */
    static <T> List<T> inThreads(Callable<T> function) throws Exception {
        List<Future<List<T>>> all = new ArrayList<>();
        for (int n = 0; n < THREADS; n++) {
            all.add(threads.submit(() -> {
                List<T> returned = new ArrayList<>();
                for (int round = 0; round < ROUNDS; round++) {
                    returned.add(function.call());
                }
                return returned;
            }));
        }
        List<T> returned = new ArrayList<>();
        for (Future<List<T>> future : all) {
            returned.addAll(future.get(PATIENCE_S, TimeUnit.SECONDS));
        }
        return returned;
    }

    /** Counts in two steps while a lock is held. */
    static void countUnder(String what, Lock lock) throws Exception {
        count = 0;
        inThreads(() -> {
            lock.lock();
            try {
                int read = count;
                Thread.yield();
                count = read + 1;
            } finally {
                lock.unlock();
            }
            return true;
        });
        check("counted under " + what, count, THREADS * ROUNDS);
    }

    static void locks() throws Exception {
        countUnder("a lock", one.getLock("guard"));
        countUnder("a fair lock", one.getFairLock("fair"));
        countUnder("a lock for writing", one.getReadWriteLock("both").writeLock());

        RLock held = one.getLock("held");
        RLock wanted = other.getLock("held");
        held.lock();
        held.lock();
        check("holds", held.getHoldCount(), 2);
        check("locked by another client", wanted.tryLock(), false);
        held.unlock();
        check("still locked", wanted.tryLock(), false);
        // One that waits is woken by a message.
        Future<Boolean> waiting = threads.submit(() -> {
            boolean locked = wanted.tryLock(PATIENCE_S, TimeUnit.SECONDS);
            wanted.unlock();
            return locked;
        });
        held.unlock();
        check("locked in the end", waiting.get(PATIENCE_S, TimeUnit.SECONDS), true);
        check("no longer locked", held.isLocked(), false);
        held.lock(300, TimeUnit.MILLISECONDS);
        check("locked after the lease", wanted.tryLock(PATIENCE_S, TimeUnit.SECONDS), true);
        check("no longer held", held.isHeldByCurrentThread(), false);
        wanted.unlock();

        RReadWriteLock both = one.getReadWriteLock("both");
        both.readLock().lock();
        check("reading beside", other.getReadWriteLock("both").readLock().tryLock(), true);
        check("writing beside", other.getReadWriteLock("both").writeLock().tryLock(), false);
        other.getReadWriteLock("both").readLock().unlock();
        both.readLock().unlock();

        RLock several = one.getMultiLock(one.getLock("first"), one.getLock("second"));
        several.lock();
        check("one of several", other.getLock("second").tryLock(), false);
        several.unlock();
        for (String name : List.of("guard", "fair", "held", "first", "second")) {
            check(name + " is locked", one.getLock(name).isLocked(), false);
        }
        one.getKeys().flushdb();
    }

    static void otherGuards() throws Exception {
        RSemaphore permits = one.getSemaphore("permits");
        permits.trySetPermits(2);
        check("two permits", permits.tryAcquire(2), true);
        check("a third", other.getSemaphore("permits").tryAcquire(), false);
        Future<Boolean> waiting = threads.submit(() ->
                other.getSemaphore("permits").tryAcquire(Duration.ofSeconds(PATIENCE_S)));
        permits.release();
        check("a permit that was released", waiting.get(PATIENCE_S, TimeUnit.SECONDS), true);

        RCountDownLatch latch = one.getCountDownLatch("latch");
        latch.trySetCount(3);
        Future<Boolean> open = threads.submit(() ->
                other.getCountDownLatch("latch").await(PATIENCE_S, TimeUnit.SECONDS));
        for (int n = 0; n < 3; n++) {
            latch.countDown();
        }
        check("the latch opens", open.get(PATIENCE_S, TimeUnit.SECONDS), true);

        RRateLimiter limiter = one.getRateLimiter("limiter");
        limiter.trySetRate(RateType.OVERALL, 100, Duration.ofHours(1));
        List<Boolean> allowed = inThreads(() -> limiter.tryAcquire());
        check("allowed", allowed.stream().filter(is -> is).count(), 100L);

        List<Long> numbers = inThreads(() -> one.getAtomicLong("number").incrementAndGet());
        check("numbers", new HashSet<>(numbers).size(), THREADS * ROUNDS);
        RBucket<String> bucket = one.getBucket("bucket");
        bucket.set("old");
        check("exchanged", bucket.compareAndSet("old", "new"), true);
        check("exchanged again", bucket.compareAndSet("old", "newer"), false);

        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        RTopic topic = other.getTopic("topic");
        topic.addListener(String.class, (channel, message) -> heard.add(message));
        check("listeners", one.getTopic("topic").publish("hello"), 1L);
        check("heard", heard.poll(PATIENCE_S, TimeUnit.SECONDS), "hello");
        one.getKeys().flushdb();
    }

    static void maps() throws Exception {
        RMap<String, String> map = one.getMap("map");
        check("no earlier value", map.put("a", "1") == null, true);
        check("an earlier value", map.put("a", "2"), "1");
        check("put if absent", map.putIfAbsent("a", "3"), "2");
        check("replaced", map.replace("a", "2", "4"), true);
        check("removed", map.remove("a", "2"), false);
        map.putAll(Map.of("b", "5", "c", "6"));
        check("all", other.getMap("map").readAllMap(), Map.of("a", "4", "b", "5", "c", "6"));
        check("some", map.getAll(Set.of("a", "c", "d")), Map.of("a", "4", "c", "6"));
        inThreads(() -> (Number) ((RMap) map).addAndGet("count", 1));
        check("added", map.get("count"), "" + THREADS * ROUNDS);
        Map<String, String> many = new java.util.HashMap<>();
        IntStream.range(0, 1000).forEach(n -> many.put("key" + n, "value" + n));
        one.getMap("many").putAll(many);
        check("iterated", new HashSet<>(one.<String, String>getMap("many").keySet()), many.keySet());

        // Entries with times to live of their own.
        RMapCache<String, String> cache = one.getMapCache("cache");
        cache.put("short", "1", 300, TimeUnit.MILLISECONDS);
        cache.put("long", "2", 1, TimeUnit.HOURS);
        cache.put("idle", "3", 0, TimeUnit.SECONDS, 1, TimeUnit.HOURS);
        check("in time", cache.get("long"), "2");
        long end = System.currentTimeMillis() + PATIENCE_S * 1000L;
        while (cache.get("short") != null && System.currentTimeMillis() < end) {
            Thread.sleep(10);
        }
        check("after its time", cache.containsKey("short"), false);
        check("what is left", cache.readAllMap(), Map.of("long", "2", "idle", "3"));
        one.getKeys().flushdb();
    }

    static void queues() throws Exception {
        RBlockingQueue<String> queue = one.getBlockingQueue("queue");
        RBlockingQueue<String> taking = other.getBlockingQueue("queue");
        Future<List<String>> taken = threads.submit(() -> {
            List<String> all = new ArrayList<>();
            for (int n = 0; n < 100; n++) {
                all.add(taking.poll(PATIENCE_S, TimeUnit.SECONDS));
            }
            return all;
        });
        List<String> put = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            put.add("element " + n);
            queue.put("element " + n);
        }
        check("taken", taken.get(PATIENCE_S, TimeUnit.SECONDS), put);
        queue.addAll(List.of("a", "b", "c", "d"));
        check("drained", drained(queue, 2), List.of("a", "b"));
        check("moved", queue.pollLastAndOfferFirstTo("moved", 1, TimeUnit.SECONDS), "d");
        check("what is left", queue.readAll(), List.of("c"));
        queue.clear();

        // Elements are moved to the queue by scripts when their time has come.
        RDelayedQueue<String> delayed = one.getDelayedQueue(queue);
        delayed.offer("second", 600, TimeUnit.MILLISECONDS);
        delayed.offer("first", 300, TimeUnit.MILLISECONDS);
        check("before its time", queue.isEmpty(), true);
        check("the first", taking.poll(PATIENCE_S, TimeUnit.SECONDS), "first");
        check("the second", taking.poll(PATIENCE_S, TimeUnit.SECONDS), "second");
        delayed.destroy();
        one.getKeys().flushdb();
    }

    static List<String> drained(RBlockingQueue<String> queue, int most) {
        List<String> all = new ArrayList<>();
        queue.drainTo(all, most);
        return all;
    }

    static void sets() throws Exception {
        RSet<String> evens = one.getSet("evens");
        RSet<String> threes = one.getSet("threes");
        for (int n = 0; n < 30; n++) {
            if (n % 2 == 0) {
                evens.add("" + n);
            }
            if (n % 3 == 0) {
                threes.add("" + n);
            }
        }
        Collection<String> common = evens.readIntersection("threes");
        check("in both", new TreeSet<>(common), new TreeSet<>(Set.of("0", "6", "12", "18", "24")));
        check("all at once", evens.containsAll(Set.of("0", "28")), true);
        evens.retainAll(Set.of("0", "28", "29"));
        check("retained", evens.readAll(), Set.of("0", "28"));

        RScoredSortedSet<String> scores = one.getScoredSortedSet("scores");
        inThreads(() -> scores.addScore("a", 1));
        scores.add(2.5, "b");
        scores.add(3.5, "c");
        check("a score", scores.getScore("a"), (double) (THREADS * ROUNDS));
        check("in order", List.copyOf(scores.valueRange(0, -1)), List.of("b", "c", "a"));
        check("a rank", scores.rank("c"), 1);
        check("the first", scores.pollFirst(), "b");
        check("the first, waiting", scores.pollFirst(1, TimeUnit.SECONDS), "c");
    }
}
