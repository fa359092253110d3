package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// marker says, in the file "cluster.json" of the folder, whose store it is. The
// engine would open any: a standalone store in a cluster loses its streams, and
// under another node's name it is another node.
type marker struct {
	Cluster string `json:"cluster"` // empty for a single node
	Node    string `json:"node"`
}

const markerFile = "cluster.json"

// mark writes the marker of a new store, or compares with what there is.
func mark(o *Options) error {
	want := marker{Node: o.Node}
	if o.Cluster != nil {
		want.Cluster = o.Cluster.Name
	}
	path := filepath.Join(o.Dir, markerFile)
	var is marker
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &is); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case hasEngine(o.Dir): // it is older than the marker
		is = marker{Node: o.Node}
	default:
		return writeMarker(path, want)
	}
	const way = "; what is in it comes along by `broker export` there and `broker import` into a new folder"
	switch {
	case is.Cluster == "" && want.Cluster != "":
		return fmt.Errorf("it is the store of a single node, and can't be opened in the cluster %q%s", want.Cluster, way)
	case is.Cluster != "" && want.Cluster == "":
		return fmt.Errorf("it is the store of a node of the cluster %q, and can't be opened without it%s", is.Cluster, way)
	case is.Cluster != want.Cluster:
		return fmt.Errorf("it is the store of a node of the cluster %q, and can't be opened in the cluster %q%s", is.Cluster, want.Cluster, way)
	case want.Cluster != "" && is.Node != want.Node:
		return fmt.Errorf("it is the store of node %q of the cluster %q, and can't be opened as node %q: that one needs a folder of its own, which the other nodes fill (`broker export` and `broker import` move data to another cluster)",
			is.Node, is.Cluster, want.Node)
	}
	return nil
}

// hasEngine says whether the engine has stored something in the folder.
func hasEngine(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, engineDir))
	return err == nil && len(entries) > 0
}

func writeMarker(path string, m marker) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
