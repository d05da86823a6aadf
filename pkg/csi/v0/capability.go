package v0

import (
	csi "github.com/container-storage-interface/spec/lib/go/csi"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// The lists of what the services can do hold only what v0 has a name for: an
// old orchestrator is never shown a number that it does not know.

func pluginCapabilities(list []*csi.PluginCapability) []*csiv0.PluginCapability {
	var out []*csiv0.PluginCapability
	for _, c := range list {
		if number, ok := known(c.GetService().GetType(), csiv0.PluginCapability_Service_Type_name); ok {
			out = append(out, &csiv0.PluginCapability{Type: &csiv0.PluginCapability_Service_{
				Service: &csiv0.PluginCapability_Service{Type: csiv0.PluginCapability_Service_Type(number)},
			}})
		}
	}
	return out
}

func controllerCapabilities(list []*csi.ControllerServiceCapability) []*csiv0.ControllerServiceCapability {
	var out []*csiv0.ControllerServiceCapability
	for _, c := range list {
		if number, ok := known(c.GetRpc().GetType(), csiv0.ControllerServiceCapability_RPC_Type_name); ok {
			out = append(out, &csiv0.ControllerServiceCapability{Type: &csiv0.ControllerServiceCapability_Rpc{
				Rpc: &csiv0.ControllerServiceCapability_RPC{Type: csiv0.ControllerServiceCapability_RPC_Type(number)},
			}})
		}
	}
	return out
}

func nodeCapabilities(list []*csi.NodeServiceCapability) []*csiv0.NodeServiceCapability {
	var out []*csiv0.NodeServiceCapability
	for _, c := range list {
		if number, ok := known(c.GetRpc().GetType(), csiv0.NodeServiceCapability_RPC_Type_name); ok {
			out = append(out, &csiv0.NodeServiceCapability{Type: &csiv0.NodeServiceCapability_Rpc{
				Rpc: &csiv0.NodeServiceCapability_RPC{Type: csiv0.NodeServiceCapability_RPC_Type(number)},
			}})
		}
	}
	return out
}

// known tells whether v0 names the value. Zero is UNKNOWN in every one of
// these enums, and what a capability of another kind reads as.
func known[E ~int32](value E, names map[int32]string) (int32, bool) {
	number := int32(value)
	_, ok := names[number]
	return number, ok && number != 0
}
