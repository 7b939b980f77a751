// Uses a server, or a cluster by one of its nodes, with redsync, with scripts of go-redis, and with rueidis:
//
//	client [cluster] ADDRESS
//
// Says "done" when all is as it should be, and the fault otherwise.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	workers = 8
	rounds  = 25
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("wrong:", err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func run(args []string) error {
	var client redis.UniversalClient
	if args[0] == "cluster" {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: args[1:]})
	} else {
		client = redis.NewClient(&redis.Options{Addr: args[0]})
	}
	defer client.Close()
	if err := locks(client); err != nil {
		return fmt.Errorf("redsync: %w", err)
	}
	if err := scripts(client); err != nil {
		return fmt.Errorf("a script: %w", err)
	}
	if err := caching(client, args[len(args)-1]); err != nil {
		return fmt.Errorf("rueidis: %w", err)
	}
	return nil
}

// Calls a function many times, several times at once.
func inWorkers(work func() error) error {
	var group sync.WaitGroup
	failures := make(chan error, workers)
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := 0; round < rounds; round++ {
				if err := work(); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	group.Wait()
	close(failures)
	return <-failures
}

func locks(client redis.UniversalClient) error {
	ctx := context.Background()
	sync := redsync.New(goredis.NewPool(client))
	count := 0
	err := inWorkers(func() error {
		patient := []redsync.Option{
			redsync.WithExpiry(time.Minute),
			redsync.WithTries(10000),
			redsync.WithRetryDelay(2 * time.Millisecond),
		}
		guard := sync.NewMutex("guard", patient...)
		if err := guard.Lock(); err != nil {
			return err
		}
		read := count
		time.Sleep(time.Microsecond)
		count = read + 1
		_, err := guard.Unlock()
		return err
	})
	if err != nil || count != workers*rounds {
		return fmt.Errorf("counted %d: %v", count, err)
	}
	one := sync.NewMutex("held", redsync.WithExpiry(time.Minute))
	other := sync.NewMutex("held", redsync.WithTries(1))
	if err := one.Lock(); err != nil {
		return err
	}
	if err := other.Lock(); err == nil {
		return errors.New("two hold one lock")
	}
	if extended, err := one.Extend(); err != nil || !extended {
		return fmt.Errorf("extended: %t, %v", extended, err)
	}
	if left := client.PTTL(ctx, "held").Val(); left < 50*time.Second || left > time.Minute {
		return fmt.Errorf("the lock is held for %v more", left)
	}
	if released, err := one.Unlock(); err != nil || !released {
		return fmt.Errorf("released: %t, %v", released, err)
	}
	if released, err := one.Unlock(); err == nil || released {
		return errors.New("a lock was released twice")
	}
	return nil
}

func scripts(client redis.UniversalClient) error {
	ctx := context.Background()
	add := redis.NewScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	if err := inWorkers(func() error {
		return add.Run(ctx, client, []string{"sum"}, 3).Err()
	}); err != nil {
		return err
	}
	if sum, err := client.Get(ctx, "sum").Int(); err != nil || sum != 3*workers*rounds {
		return fmt.Errorf("the sum is %d: %v", sum, err)
	}
	// Keys of all nodes of a cluster.
	for i := 1; i <= 50; i++ {
		key := fmt.Sprintf("sum:%d", i)
		if sum, err := add.Run(ctx, client, []string{key}, i).Int(); err != nil || sum != i {
			return fmt.Errorf("%s is %d: %v", key, sum, err)
		}
	}
	// A server that does not know the script is sent it again.
	if err := client.ScriptFlush(ctx).Err(); err != nil {
		return err
	}
	if sum, err := add.Run(ctx, client, []string{"sum:1"}, 1).Int(); err != nil || sum != 2 {
		return fmt.Errorf("sum:1 is %d: %v", sum, err)
	}
	return nil
}
