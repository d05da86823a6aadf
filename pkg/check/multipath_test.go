package check

import "testing"

func TestMultipath(t *testing.T) {
	runs := files{"proc/net/unix": "1: 2 0 10000 1 1 77 @/org/kernel/linux/storage/multipathd\n"}
	conf := func(text string) files { return runs.with(files{"etc/multipath.conf": text}) }
	mapped := files{
		"sys/block/sda/device/vendor": "LIO-ORG \n", "sys/block/sda/holders/dm-0/dm/uuid": "mpath-36001405\n", "sys/block/sda/holders/dm-0/dm/name": "mpatha\n",
	}
	judge(t, []row{
		{"not there", files{}, nil, OK, []string{"is not needed"}},
		{"gone, and its maps are not", mapped, nil, Warn, []string{"mpatha", "systemctl start multipathd"}},
		{"another's map", mapped.with(files{"sys/block/sda/device/vendor": "ATA\n"}), nil, OK, nil},
		{"a mapping of another kind", mapped.with(files{"sys/block/sda/holders/dm-0/dm/uuid": "LVM-x\n"}), nil, OK, nil},
		{"no configuration", runs, nil, OK, []string{"strict"}},
		{"strict", conf("defaults {\n\tfind_multipaths strict\n}\n"), nil, OK, []string{"strict"}},
		{"yes", conf("defaults {\n\tuser_friendly_names yes\n\tfind_multipaths \"yes\"\n}\n"), nil, OK, []string{"two paths"}},
		{"no", conf("defaults {\n\tfind_multipaths no\n}\n").with(mapped), nil, Warn, []string{"every disk", "1 maps"}},
		{"greedy", conf("defaults { find_multipaths greedy }"), nil, Warn, nil},
		{"in a comment", conf("defaults {\n#\tfind_multipaths no\n! find_multipaths greedy\n}\n"), nil, OK, nil},
		{"in conf.d", runs.with(files{"etc/multipath/conf.d/x.conf": "defaults {\n find_multipaths off\n}\n"}), nil, Warn, nil},
		{"our vendor is blacklisted", conf("defaults {\n find_multipaths no\n}\nblacklist {\n device {\n vendor \"LIO-ORG\"\n product \".*\"\n }\n}\n"), nil, OK, []string{"blacklist"}},
		{"another product is", conf("defaults {\n find_multipaths no\n}\nblacklist {\n device {\n vendor \"LIO-ORG\"\n product \"TCMU\"\n }\n}\n"), nil, Warn, nil},
		{"all disks are", conf("defaults {\n find_multipaths no\n}\nblacklist {\n devnode \"^sd\"\n}\n"), nil, OK, nil},
		{"one disk is", conf("defaults {\n find_multipaths no\n}\nblacklist {\n devnode \"^sda$\"\n}\n"), nil, Warn, nil},
		{"all but some are", conf("defaults {\n find_multipaths no\n}\nblacklist {\n devnode \"!^dasd\"\n}\n"), nil, OK, nil},
		{"all ids are", conf("defaults {\n find_multipaths no\n}\nblacklist {\n wwid \".*\"\n}\n"), nil, OK, nil},
		{"all ids but ours are", conf("defaults {\n find_multipaths no\n}\nblacklist {\n wwid \".*\"\n}\nblacklist_exceptions {\n wwid \"36001405.*\"\n}\n"), nil, Warn, nil},
		{"unbalanced", conf("}\n}\ndefaults {\n find_multipaths no\n"), nil, OK, nil},
	}, (*Checker).multipath)
}
