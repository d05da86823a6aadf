package sanityv0

import (
	"slices"

	"google.golang.org/grpc/codes"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

func listChecks() []Check {
	const section = "3, ListVolumes"
	return []Check{
		{Name: "list/all-volumes-with-their-attributes", Section: section, needs: needVolumes | needList, run: checkListAll},
		{Name: "list/never-more-than-max-entries", Section: section, needs: needVolumes | needList, run: checkListMax},
		{Name: "list/pages-hold-each-volume-exactly-once", Section: section, needs: needVolumes | needList, run: checkListPages},
		{Name: "list/one-large-page-has-no-token", Section: section, needs: needVolumes | needList, run: checkListLarge},
		{Name: "list/bad-token-is-aborted", Section: section, needs: needVolumes | needList, run: checkListBadToken},
		{Name: "list/negative-max-entries-is-refused", Section: section, needs: needList, run: checkListNegative},
		{Name: "list/deletion-between-pages-repeats-and-loses-nothing", Section: section, needs: needVolumes | needList, run: checkListDeletion},
	}
}

// listAll follows the pages to the end and returns the entries in order, and how
// many came in each page.
func (s *suite) listAll(maxEntries int32) ([]*csi.Volume, []int, error) {
	var all []*csi.Volume
	var sizes []int
	token := ""
	for {
		resp, err := s.controller.ListVolumes(once(s.ctx), &csi.ListVolumesRequest{MaxEntries: maxEntries, StartingToken: token})
		if err != nil {
			return nil, nil, err
		}
		for _, e := range resp.GetEntries() {
			all = append(all, e.GetVolume())
		}
		sizes = append(sizes, len(resp.GetEntries()))
		// The bound is for a plugin whose tokens go round in circles: its entries
		// repeat, and that is seen.
		if token = resp.GetNextToken(); token == "" || len(sizes) > 10_000 {
			return all, sizes, nil
		}
	}
}

// listed is the entry of that id, or nil.
func (c *C) listed(id string) *csi.Volume {
	all, _, err := c.listAll(0)
	c.must(err, "ListVolumes")
	for _, v := range all {
		if v.GetId() == id {
			return v
		}
	}
	return nil
}

func (c *C) allIDs() []string {
	all, _, err := c.listAll(0)
	c.must(err, "ListVolumes")
	return sortedIDs(all)
}

func sortedIDs(vs []*csi.Volume) []string {
	ids := make([]string, len(vs))
	for i, v := range vs {
		ids[i] = v.GetId()
	}
	slices.Sort(ids)
	return ids
}

func (c *C) wantSameIDs(when string, want, got []string) {
	if !slices.Equal(want, got) {
		c.Errorf("the volumes %s are %q, want %q", when, got, want)
	}
}

// several makes sure that there are at least four volumes to list.
func (c *C) several() []*volume {
	return []*volume{c.base(), c.shared("plain"), c.shared("odd"), c.shared("limited")}
}

func checkListAll(c *C) {
	vs := c.several()
	all, sizes, err := c.listAll(0)
	c.must(err, "ListVolumes")
	if len(sizes) > 1 {
		c.Logf("without max_entries the plugin answers in %d pages", len(sizes))
	}
	for _, v := range vs {
		i := slices.IndexFunc(all, func(e *csi.Volume) bool { return e.GetId() == v.GetId() })
		if i < 0 {
			c.Errorf("ListVolumes does not hold %q", v.GetId())
			continue
		}
		c.wantEqual("ListVolumes, compared with CreateVolume", v.Volume, all[i])
	}
}

func checkListMax(c *C) {
	c.several()
	for _, n := range []int32{1, 3} {
		resp, err := c.controller.ListVolumes(once(c.ctx), &csi.ListVolumesRequest{MaxEntries: n})
		c.must(err, "ListVolumes with max_entries")
		if got := len(resp.GetEntries()); got > int(n) {
			c.Errorf("ListVolumes with max_entries %d: got %d entries", n, got)
		}
		if resp.GetNextToken() == "" {
			c.Errorf("ListVolumes with max_entries %d of at least 4: no next_token", n)
		}
	}
}

func checkListPages(c *C) {
	c.several()
	want := c.allIDs()
	sizes := []int32{1, 2}
	if len(want) > 30 {
		sizes = []int32{int32(len(want) / 10)} // a call for each volume would take too long
	}
	for _, n := range sizes {
		all, pages, err := c.listAll(n)
		c.must(err, "ListVolumes in pages")
		c.wantSameIDs("listed in pages", want, sortedIDs(all))
		if got := slices.Max(pages); got > int(n) {
			c.Errorf("ListVolumes with max_entries %d: got a page of %d", n, got)
		}
	}
}

func checkListLarge(c *C) {
	c.several()
	want := c.allIDs()
	for what, n := range inOrder(map[string]int32{"of the exact number": int32(len(want)), "of more than there are": int32(len(want) + 100)}) {
		resp, err := c.controller.ListVolumes(once(c.ctx), &csi.ListVolumesRequest{MaxEntries: n})
		c.must(err, "ListVolumes with max_entries "+what)
		var got []*csi.Volume
		for _, e := range resp.GetEntries() {
			got = append(got, e.GetVolume())
		}
		c.wantSameIDs("on a page "+what, want, sortedIDs(got))
		if resp.GetNextToken() != "" {
			c.Errorf("ListVolumes with max_entries %s: next_token is set, but nothing is left", what)
		}
	}
}

func checkListBadToken(c *C) {
	c.several()
	for _, token := range []string{"zzz", "-1", "../x", "99999999999999999999", " "} {
		_, err := c.controller.ListVolumes(once(c.ctx), &csi.ListVolumesRequest{StartingToken: token, MaxEntries: 1})
		c.want(err, "ListVolumes from the token \""+token+"\"", codes.Aborted)
	}
}

func checkListNegative(c *C) {
	for what, r := range inOrder(map[string]*csi.ListVolumesRequest{
		"-1": {MaxEntries: -1}, "-2147483648": {MaxEntries: -1 << 31}, "-1 and a bad token": {MaxEntries: -1, StartingToken: "zzz"},
	}) {
		_, err := c.controller.ListVolumes(once(c.ctx), r)
		c.want(err, "ListVolumes with max_entries "+what, codes.InvalidArgument)
	}
	_, err := c.controller.ListVolumes(once(c.ctx), &csi.ListVolumesRequest{})
	c.must(err, "ListVolumes after refused ones")
}

// checkListDeletion deletes the last volume of a page before the next is asked
// for. The plugin may call the token bad; if it goes on, the rest comes once, and
// all of it.
func checkListDeletion(c *C) {
	c.several()
	all, _, err := c.listAll(0)
	c.must(err, "ListVolumes")
	// The page ends at a volume of this run that no other check is in the middle of.
	victim, size := c.shared("plain"), 1
	for i, e := range all[:len(all)-1] {
		for topic, v := range c.volumes {
			if v.GetId() == e.GetId() && topic != "base" && topic != "multi" {
				victim, size = v, i+1
			}
		}
	}
	times := map[string]int{}
	count := func(resp *csi.ListVolumesResponse) {
		for _, e := range resp.GetEntries() {
			times[e.GetVolume().GetId()]++
		}
	}
	resp, err := c.controller.ListVolumes(once(c.ctx), &csi.ListVolumesRequest{MaxEntries: int32(size)})
	c.must(err, "ListVolumes, first page")
	count(resp)
	c.remove(victim)
	for pages := 0; resp.GetNextToken() != "" && pages <= len(all); pages++ {
		resp, err = c.controller.ListVolumes(once(c.ctx), &csi.ListVolumesRequest{MaxEntries: int32(size), StartingToken: resp.GetNextToken()})
		if !c.want(err, "ListVolumes, next page after a deletion", codes.OK, codes.Aborted) || err != nil {
			return
		}
		count(resp)
	}
	for _, e := range all {
		if id := e.GetId(); id != victim.GetId() && times[id] != 1 {
			c.Errorf("%q was listed %d times around the deletion of another volume", id, times[id])
		}
	}
}
