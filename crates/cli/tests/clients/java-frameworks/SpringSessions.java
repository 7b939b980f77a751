// What Spring Session keeps on a server: `SpringSessions.java PORT`. Says "done" when all is as it should be.
//
// Java runs it from its source: java -cp 'target/peers/spring-session/lib/*' SpringSessions.java PORT

import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.listener.ChannelTopic;
import org.springframework.data.redis.listener.PatternTopic;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;
import org.springframework.data.redis.serializer.RedisSerializer;
import org.springframework.session.FindByIndexNameSessionRepository;
import org.springframework.session.Session;
import org.springframework.session.SessionRepository;
import org.springframework.session.data.redis.RedisIndexedSessionRepository;
import org.springframework.session.data.redis.RedisSessionRepository;
import org.springframework.session.data.redis.config.ConfigureNotifyKeyspaceEventsAction;
import org.springframework.session.events.AbstractSessionEvent;

public class SpringSessions {
    static final int PATIENCE_S = 60;
    static final String PRINCIPAL = FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME;

    static RedisTemplate<String, Object> template;

    public static void main(String[] args) {
        try {
            run(Integer.parseInt(args[0]));
        } catch (Throwable error) {
            error.printStackTrace();
            // Threads of the client would go on.
            System.exit(1);
        }
    }

    static void run(int port) throws Exception {
        LettuceConnectionFactory factory = new LettuceConnectionFactory("127.0.0.1", port);
        factory.afterPropertiesSet();
        factory.start();
        template = new RedisTemplate<>();
        template.setKeySerializer(RedisSerializer.string());
        template.setHashKeySerializer(RedisSerializer.string());
        template.setConnectionFactory(factory);
        template.afterPropertiesSet();

        // Two web servers share the sessions.
        keptAndChanged(new RedisSessionRepository(template), new RedisSessionRepository(template));
        RedisIndexedSessionRepository indexed = new RedisIndexedSessionRepository(template);
        keptAndChanged(indexed, new RedisIndexedSessionRepository(template));
        foundAndAnnounced(factory, indexed);
        indexed.destroy();
        factory.destroy();
        System.out.println("done");
    }

    static void check(String what, Object found, Object expected) {
        if (!found.equals(expected)) {
            throw new AssertionError(what + ": found " + found + ", expected " + expected);
        }
    }

    static <S extends Session> void keptAndChanged(SessionRepository<S> one, SessionRepository<S> other) {
        S session = one.createSession();
        session.setAttribute("cart", List.of("apple"));
        session.setMaxInactiveInterval(Duration.ofSeconds(1000));
        one.save(session);
        String id = session.getId();
        S read = other.findById(id);
        check("an attribute", read.getAttribute("cart"), List.of("apple"));
        check("the interval", read.getMaxInactiveInterval(), Duration.ofSeconds(1000));
        read.setAttribute("cart", List.of("apple", "pear"));
        read.setAttribute("name", "Ada");
        other.save(read);
        S again = one.findById(id);
        check("an attribute", again.getAttribute("cart"), List.of("apple", "pear"));
        again.removeAttribute("name");
        String changed = again.changeSessionId();
        one.save(again);
        check("the former id", other.findById(id) == null, true);
        check("attributes", other.findById(changed).getAttributeNames(), Set.of("cart"));
        one.deleteById(changed);
        check("deleted", other.findById(changed) == null, true);
    }

    static void foundAndAnnounced(LettuceConnectionFactory factory, RedisIndexedSessionRepository sessions)
            throws Exception {
        new ConfigureNotifyKeyspaceEventsAction().configure(factory.getConnection());
        BlockingQueue<String> events = new LinkedBlockingQueue<>();
        sessions.setApplicationEventPublisher(event -> {
            AbstractSessionEvent about = (AbstractSessionEvent) event;
            events.add(event.getClass().getSimpleName() + " " + about.getSessionId());
        });
        RedisMessageListenerContainer container = new RedisMessageListenerContainer();
        container.setConnectionFactory(factory);
        container.addMessageListener(sessions, List.of(
                new ChannelTopic(sessions.getSessionDeletedChannel()),
                new ChannelTopic(sessions.getSessionExpiredChannel())));
        container.addMessageListener(sessions, List.of(
                new PatternTopic(sessions.getSessionCreatedChannelPrefix() + "*")));
        container.afterPropertiesSet();
        container.start();

        String deleted = saved(sessions, "Ada", Duration.ofHours(1));
        check("an event", event(events), "SessionCreatedEvent " + deleted);
        String expired = saved(sessions, "Ada", Duration.ofSeconds(1));
        check("an event", event(events), "SessionCreatedEvent " + expired);
        check("sessions of a user", sessions.findByPrincipalName("Ada").keySet(), Set.of(deleted, expired));
        check("an event", event(events), "SessionExpiredEvent " + expired);
        check("sessions of a user", sessions.findByPrincipalName("Ada").keySet(), Set.of(deleted));
        sessions.deleteById(deleted);
        check("an event", event(events), "SessionDeletedEvent " + deleted);
        check("sessions of a user", sessions.findByPrincipalName("Ada").keySet(), Set.of());
        container.destroy();
    }

    static <S extends Session> String saved(SessionRepository<S> sessions, String user, Duration interval) {
        S session = sessions.createSession();
        session.setAttribute(PRINCIPAL, user);
        session.setMaxInactiveInterval(interval);
        sessions.save(session);
        return session.getId();
    }

    static String event(BlockingQueue<String> events) throws Exception {
        String event = events.poll(PATIENCE_S, TimeUnit.SECONDS);
        return event == null ? "no event" : event;
    }
}
