package volume

// groupRecord is what each member of a group of snapshots says of the whole.
type groupRecord struct {
	// Name is the name that the orchestrator gave.
	Name string `json:"name"`
	// Members are the volumes, by the component of their ids.
	Members map[string]groupMember `json:"members"`
}

// groupMember is a volume as it was when the group was taken.
type groupMember struct {
	UUID  string `json:"uuid"`
	Bytes int64  `json:"bytes"`
}
