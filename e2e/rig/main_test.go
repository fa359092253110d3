package rig_test

import (
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/e2e/rig/rigtest"
)

func TestMain(m *testing.M) { rigtest.Main(m, rig.TestPackages...) }
