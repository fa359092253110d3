package config

// Override is a list that a command line says in place of the file. Without
// Values there is none.
type Override struct {
	From   string   // who says so, for messages: "flag --join"
	Path   []string // of the key
	Values []string
}

// lay puts the list over the file's tree.
func (o Override) lay(root *node) {
	if len(o.Values) == 0 {
		return
	}
	n := &node{kind: list, from: o.From}
	for _, v := range o.Values {
		n.items = append(n.items, &node{kind: text, text: v, from: o.From})
	}
	overlay(root, o.Path, n)
}
