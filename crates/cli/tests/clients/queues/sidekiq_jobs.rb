# Sidekiq: jobs, and the program that has processes of Sidekiq execute them: `ruby sidekiq_jobs.rb`, with the
# address of the server in the environment variable REDIS_URL. Says "done" when all is as it should be.

require "sidekiq"
require "sidekiq/api"

# Seconds after which a condition counts as one that never holds.
PATIENCE = 60

# Otherwise the client warns at each call.
Redis.sadd_returns_boolean = false
Sidekiq.configure_server { |config| config.options[:poll_interval_average] = 0.2 }

def redis(&block)
  Sidekiq.redis(&block)
end

# Counts one more execution of a job.
def done(job)
  redis { |client| client.hincrby("done", job, 1) }
end

class Add
  include Sidekiq::Job

  def perform(one, other)
    done("#{one} + #{other}")
    redis { |client| client.hincrby("sums", "total", one + other) }
  end
end

class FailsTwice
  include Sidekiq::Job

  def perform
    attempts = redis { |client| client.incr("attempts") }
    raise "attempt #{attempts}" if attempts < 3

    done("attempt #{attempts}")
  end
end

class Fails
  include Sidekiq::Job
  sidekiq_options retry: 0

  def perform
    raise "on purpose"
  end
end

class HangsOnce
  include Sidekiq::Job

  def perform
    sleep(PATIENCE) if done("hangs") == 1
  end
end

def check(what, found, expected)
  raise "#{what}: found #{found.inspect}, expected #{expected.inspect}" unless found == expected
end

# Checks that exactly these jobs have been done, each of them once, and forgets them.
def check_done_once(jobs)
  check("jobs that were done", redis { |client| client.hgetall("done") }, jobs.to_h { |job| [job, "1"] })
  redis { |client| client.del("done") }
end

def wait(what)
  ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
  until yield
    raise "never: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends

    sleep(0.01)
  end
end

def count_of_done
  redis { |client| client.hlen("done") }
end

# Runs the block beside a process of Sidekiq, which gets the signal TERM in the end.
def beside_a_process
  program = ["sidekiq", "--require", File.expand_path(__FILE__), "--concurrency", "4", "--timeout", "5"]
  output = File.open("/dev/null", "w")
  process = Process.spawn(*program, out: output, err: output)
  yield
ensure
  Process.kill("TERM", process)
  Process.wait(process)
end

def main
  beside_a_process do
    100.times { |number| Add.perform_async(number, 1) }
    Add.perform_bulk((100...200).map { |number| [number, 1] })
    wait("the sums") { count_of_done == 200 }
    check_done_once((0...200).map { |number| "#{number} + 1" })
    check("the total", redis { |client| client.hget("sums", "total") }, 200.times.sum { |number| number + 1 }.to_s)

    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    Add.perform_in(1, 2, 2)
    check("scheduled jobs", Sidekiq::ScheduledSet.new.size, 1)
    deleted = Add.perform_in(3600, 3, 3)
    check("deleted", Sidekiq::ScheduledSet.new.find_job(deleted).delete, true)
    FailsTwice.perform_async
    2.times do
      wait("a job to be retried") { Sidekiq::RetrySet.new.size == 1 }
      # It would come by itself half a minute later.
      Sidekiq::RetrySet.new.each(&:retry)
    end
    wait("both jobs") { count_of_done == 2 }
    raise "it was not postponed" if Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun < 0.9

    check_done_once(["2 + 2", "attempt 3"])
    Fails.perform_async
    wait("a dead job") { Sidekiq::DeadSet.new.size == 1 }
    check("its error", Sidekiq::DeadSet.new.first.item["error_message"], "on purpose")

    HangsOnce.perform_async
    wait("the job hangs") { count_of_done == 1 }
  end
  # A process that has to end puts the jobs back that it has not done.
  check("jobs that were put back", Sidekiq::Queue.new.size, 1)
  beside_a_process { wait("its second execution") { redis { |client| client.hget("done", "hangs") } == "2" } }
  statistics = Sidekiq::Stats.new
  check("jobs that are left", [statistics.enqueued, statistics.scheduled_size, statistics.retry_size], [0, 0, 0])
  puts "done"
end

main if $PROGRAM_NAME == __FILE__
