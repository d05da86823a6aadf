package fake

// used is everything that the dataset takes from its parent, reservations of
// those below included (dsl_dir.c).
func (f *ZFS) used(n *node) int64 {
	sum := max(n.unique, n.number("refreservation"))
	for _, s := range f.snapshots(n) {
		sum += s.unique
	}
	for _, c := range f.children(n) {
		sum += max(f.used(c), c.number("reservation"))
	}
	return sum
}

// room is what can be added below the dataset: what the pool, the quotas and
// the reservations of all above leave.
func (f *ZFS) room(n *node) int64 {
	left := f.size - f.used(n)
	if above := f.nodes[parent(n.name)]; above != nil {
		left = f.room(above) + max(0, n.number("reservation")-f.used(n))
	}
	if q := n.number("quota"); q > 0 {
		left = min(left, q-f.used(n))
	}
	return max(0, left)
}

// available is the property: room, what is reserved for the dataset itself, and
// its refquota.
func (f *ZFS) available(n *node) int64 {
	left := f.room(n) + max(0, n.number("refreservation")-n.unique)
	if q := n.number("refquota"); q > 0 {
		left = min(left, max(0, q-n.data))
	}
	return left
}

// volumeReservation is the refreservation of a thick zvol: its size and the
// metadata for it (zvol_volsize_to_reservation in libzfs_dataset.c, for one
// copy on a plain disk).
func volumeReservation(volBytes, blockBytes int64) int64 {
	const (
		indirectBytes = 128 << 10
		pointers      = 1 << 10 // block pointers in one indirect block
	)
	blocks := (volBytes + blockBytes - 1) / blockBytes
	metadata := int64(7)
	for blocks > 1 {
		blocks = (blocks + pointers - 1) / pointers
		metadata += blocks
	}
	return volBytes + 2*metadata*indirectBytes // metadata is written twice
}
