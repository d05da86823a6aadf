package volume

// source is what a volume was made from, as it is stored. The zero value is
// nothing.
type source struct {
	// Snapshot or Volume is the id that the orchestrator gave.
	Snapshot string `json:"snapshot,omitempty"`
	Volume   string `json:"volume,omitempty"`
	// Origin is the uuid of the volume whose blocks a linked clone shares.
	Origin string `json:"origin,omitempty"`
}
