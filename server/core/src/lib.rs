//! The lock table of the monolock lock server: claims, queues, leases, fencing tokens and the gate; pure.
