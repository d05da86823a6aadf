package iscsi

import (
	"errors"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestC28PortalForms(t *testing.T) {
	for in, want := range map[string]portal{
		"[2001:db8::10]:3260": {"2001:db8::10", 3260},
		"[2001:db8::10]":      {"2001:db8::10", 3260},
		"2001:db8::10":        {"2001:db8::10", 3260},
		"nas.example:3260":    {"nas.example", 3260},
		"nas.example":         {"nas.example", 3260},
		"192.0.2.10":          {"192.0.2.10", 3260},
		"192.0.2.10:860":      {"192.0.2.10", 860},
		"::1":                 {"::1", 3260},
	} {
		got, err := parsePortal(in)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for want, p := range map[string]portal{
		"[2001:db8::10]:3260": {"2001:db8::10", 3260},
		"nas.example:860":     {"nas.example", 860},
	} {
		if p.String() != want {
			t.Errorf("%v is written %s", p, p)
		}
	}
}

func TestHostilePortalsAreRefused(t *testing.T) {
	for _, in := range []string{
		"", ":", ":3260", "192.0.2.10:", "192.0.2.10:0", "192.0.2.10:65536", "192.0.2.10:+1", "192.0.2.10:3260,1", "192.0.2.10:32 60",
		"[2001:db8::10", "[2001:db8::10]x", "[2001:db8::10]:", "[2001:db8::10]3260", "[192.0.2.10]:3260", "[]:3260", "fe80::1%eth0",
		"[fe80::1%eth0]:3260", "-m", "--help", "nas example", "nas/../x", "nas\n", "näs", "2001:db8:::1", strings.Repeat("a", 254),
	} {
		if p, err := parsePortal(in); !errors.Is(err, fault.Invalid) {
			t.Errorf("%q: %v, %v", in, p, err)
		}
	}
}

func TestHostileTargetsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*attach.Target){
		"no IQN":           func(t *attach.Target) { t.IQN = "" },
		"path in IQN":      func(t *attach.Target) { t.IQN = "iqn.2026-01.io.example:../../x" },
		"option as IQN":    func(t *attach.Target) { t.IQN = "-o" },
		"upper case":       func(t *attach.Target) { t.IQN = "iqn.2026-01.io.example:A" },
		"blank in IQN":     func(t *attach.Target) { t.IQN = "iqn.2026-01.io.example:a b" },
		"glob in IQN":      func(t *attach.Target) { t.IQN = "iqn.2026-01.io.example:*" },
		"long IQN":         func(t *attach.Target) { t.IQN = "iqn.2026-01.io.example:" + strings.Repeat("a", 201) },
		"no initiator":     func(t *attach.Target) { t.Initiator = "" },
		"newline in name":  func(t *attach.Target) { t.Initiator = "iqn.2026-01.io.example:a\nx" },
		"LUN 0":            func(t *attach.Target) { t.LUN = 0 },
		"negative LUN":     func(t *attach.Target) { t.LUN = -1 },
		"LUN too large":    func(t *attach.Target) { t.LUN = 16384 },
		"no serial":        func(t *attach.Target) { t.Serial = "" },
		"no portal":        func(t *attach.Target) { t.Portals = nil },
		"one portal wrong": func(t *attach.Target) { t.Portals = append(t.Portals, "-p") },
	} {
		target := testTarget()
		change(&target)
		if _, err := checkTarget(target); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, iqn := range []string{testIQN, "iqn.1993-08.org.debian:01:abc", "eui.02004567a425678d", "naa.52004567ba64678d", "iqn.2001-04.com.example"} {
		if err := checkName("target", iqn); err != nil {
			t.Error(err)
		}
	}
}
