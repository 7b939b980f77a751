// Uses a server, or a cluster by one of its nodes, over TLS with go-redis:
//
//	client [cluster] ADDRESS CA [CERTIFICATE KEY]
//
// Says "done" when all is as it should be, and what is wrong otherwise.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("wrong:", err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func run(args []string) error {
	isCluster := args[0] == "cluster"
	if isCluster {
		args = args[1:]
	}
	pem, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no certificate", args[1])
	}
	settings := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	if len(args) > 2 {
		own, err := tls.LoadX509KeyPair(args[2], args[3])
		if err != nil {
			return err
		}
		settings.Certificates = []tls.Certificate{own}
	}
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: args[:1], TLSConfig: settings, MaxRetries: -1, PoolSize: 8, IsClusterMode: isCluster,
	})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	long := strings.Repeat("0123456789", 100_000)
	if err := client.Set(ctx, "go:long", long, 0).Err(); err != nil {
		return err
	}
	if value, err := client.Get(ctx, "go:long").Result(); err != nil || value != long {
		return fmt.Errorf("a long value: %d bytes, %v", len(value), err)
	}
	// Connections of the pool write at the same time, in pipelines and in blocks.
	var group sync.WaitGroup
	failures := make(chan error, 8)
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := 0; round < 20; round++ {
				pipeline := client.TxPipeline()
				for i := 0; i < 10; i++ {
					pipeline.Incr(ctx, "go:count")
				}
				if _, err := pipeline.Exec(ctx); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	group.Wait()
	close(failures)
	if err := <-failures; err != nil {
		return err
	}
	if count, err := client.Get(ctx, "go:count").Int(); err != nil || count != 1600 {
		return fmt.Errorf("%d of 1600 increments: %v", count, err)
	}
	// Keys of all nodes of a cluster.
	for i := 0; i < 100; i++ {
		key := fmt.Sprintf("go:%d", i)
		if err := client.Set(ctx, key, i, 0).Err(); err != nil {
			return err
		}
		if value, err := client.Get(ctx, key).Int(); err != nil || value != i {
			return fmt.Errorf("%s is %d: %v", key, value, err)
		}
		if err := client.Del(ctx, key).Err(); err != nil {
			return err
		}
	}
	return client.Del(ctx, "go:long", "go:count").Err()
}
