//! One node of an active/standby pair of monolock lock servers.
