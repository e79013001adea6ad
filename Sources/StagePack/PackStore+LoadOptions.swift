extension PackStore {
    /// Options for loading a pack.
    public struct LoadOptions: Sendable {
        /// The maximum time to wait for a fetch, including the time in which the machine is suspended; `nil` for no limit.
        ///
        /// A running daemon continues a fetch with a time limit when that has passed, or when the task is cancelled.
        public var timeout: Duration?
        /// `true` to fetch nothing.
        public var isOffline: Bool

        /// Creates options: by default, without a timeout and not offline.
        public init(timeout: Duration? = nil, isOffline: Bool = false) {
            self.timeout = timeout
            self.isOffline = isOffline
        }
    }
}
