package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// Reads by rueidis, which keeps what it has read, while another client writes.
func caching(writer redis.UniversalClient, address string) error {
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}})
	if err != nil {
		return err
	}
	defer client.Close()
	read := func(key string) rueidis.RedisResult {
		return client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Hour)
	}
	for number := 1; number <= 20; number++ {
		for i := 0; i < 50; i++ {
			key := fmt.Sprintf("cached:%d", i)
			if err := writer.Set(ctx, key, number, 0).Err(); err != nil {
				return err
			}
			until := time.Now().Add(20 * time.Second)
			for {
				value, err := read(key).ToString()
				if err != nil {
					return err
				}
				if value == strconv.Itoa(number) {
					break
				}
				if time.Now().After(until) {
					return fmt.Errorf("%s stays %s, and is %d", key, value, number)
				}
			}
		}
	}
	for i := 0; i < 50; i++ {
		if !read(fmt.Sprintf("cached:%d", i)).IsCacheHit() {
			return errors.New("a value was not kept")
		}
	}
	return nil
}
