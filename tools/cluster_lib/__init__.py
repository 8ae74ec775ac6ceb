# SPDX-License-Identifier: Apache-2.0
"""The parts of tools/cluster.

errors      what can go wrong, and with which exit code it ends
namespaces  the system calls: unshare, mount, first process of new namespaces
init        the first process of a node: reaps, and starts commands asked for over a socket
client      the other end of that socket
network     rates, addresses, and the words for ip and tc
fabric      builds a cluster: a fabric that holds the bridge, and nodes below it
state       which clusters exist, and the sweeping of dead ones
launch      starts ranks: through mpirun, or as plain processes
cli         the command line and the manual
"""
