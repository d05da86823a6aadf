package zfs_test

import (
	"strconv"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

var spaceRules = []rule{
	{"a thick zvol that does not fit", func(w *world) {
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("z"), VolumeBytes: w.poolBytes}), zfs.ErrNoSpace)
		w.gone(w.at("z"))
		w.works(w.Create(w.Context(), zfs.Spec{Name: w.at("z"), VolumeBytes: 100 * w.poolBytes, Thin: true}))
	}},
	{"a thick filesystem that does not fit", func(w *world) {
		huge := strconv.FormatInt(w.poolBytes, 10)
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("v"), Properties: settings("tarn:name=x", "refquota="+huge, "refreservation="+huge)}), zfs.ErrNoSpace)
		w.gone(w.at("v"))
		w.fails(w.Set(w.Context(), w.fs("v"), zfs.Setting{Name: "refreservation", Value: huge}), zfs.ErrNoSpace)
	}},
	{"refreservation above refquota, and a refquota below what an empty filesystem takes", func(w *world) {
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("v"), Properties: settings("refquota=5242880", "refreservation=10485760")}), zfs.ErrNoSpace)
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("v"), Properties: settings("refquota=10")}), zfs.ErrNoSpace)
		w.gone(w.at("v"))
	}},
	{"the reservation of a thick zvol has room for its metadata, and follows its size", func(w *world) {
		w.must(w.Create(w.Context(), zfs.Spec{Name: w.at("z"), VolumeBytes: 32 << 20, Properties: settings("volblocksize=16384")}))
		equal(w, "refreservation", w.get(w.at("z")).Bytes("refreservation"), 36175872)
		w.works(w.Set(w.Context(), w.at("z"), zfs.Setting{Name: "volsize", Value: "67108864"}))
		equal(w, "refreservation", w.get(w.at("z")).Bytes("refreservation"), 70254592)
		w.works(w.Set(w.Context(), w.at("z"), zfs.Setting{Name: "volsize", Value: "16777216"}))
		equal(w, "refreservation", w.get(w.at("z")).Bytes("refreservation"), 18874368)
		w.fails(w.Set(w.Context(), w.at("z"), zfs.Setting{Name: "volsize", Value: strconv.FormatInt(w.poolBytes, 10)}), zfs.ErrNoSpace)
		equal(w, "volsize", w.get(w.at("z")).Bytes("volsize"), 16<<20)
	}},
	{"available is what a quota above leaves", func(w *world) { // C46
		w.must(w.admin.Put(w.parent, "quota", strconv.Itoa(20<<20)))
		before, err := w.Available(w.Context(), w.parent)
		w.works(err)
		equal(w, "within the quota", before > 18<<20 && before <= 20<<20, true)
		w.fails(w.Create(w.Context(), zfs.Spec{Name: w.at("z"), VolumeBytes: 32 << 20}), zfs.ErrNoSpace)
		w.must(w.Create(w.Context(), zfs.Spec{Name: w.at("v"), Properties: settings("refquota=8388608", "refreservation=8388608")}))
		after, err := w.Available(w.Context(), w.parent)
		w.works(err)
		equal(w, "less by what is reserved", before-after, 8<<20)
		w.fails(w.Set(w.Context(), w.fs("w"), zfs.Setting{Name: "refreservation", Value: "20971520"}), zfs.ErrNoSpace)
	}},
	{"the refquota of a volume is below what it already holds", func(w *world) {
		name := w.fs("v", "refquota=104857600")
		w.must(w.admin.Write(name, 8<<20))
		w.fails(w.Set(w.Context(), name, zfs.Setting{Name: "refquota", Value: "4194304"}), zfs.ErrBadValue)
		w.works(w.Set(w.Context(), name, zfs.Setting{Name: "refquota", Value: "16777216"}))
	}},
	{"nothing is written past the refquota", func(w *world) {
		name := w.fs("v", "refquota=4194304")
		if err := w.admin.Write(name, 16<<20); err == nil {
			w.Fatal("16 MiB went into 4 MiB")
		}
	}},
}
