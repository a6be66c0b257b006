//! Hold a monolock lock exactly while the server confirms it, and stop the work when it is lost.
