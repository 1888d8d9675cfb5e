"""The chart on a real control plane: etcd, API server, controllers, scheduler and KEDA, with Pods as local processes.

`make kube` runs it. It is not part of `make test`: it needs Go, root and some minutes.
"""
