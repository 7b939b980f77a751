// The server etcd, as its own module builds it. Its go.mod replaces modules by folders beside it, so
// that "go install" refuses it; this one requires the same modules at their published versions.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
