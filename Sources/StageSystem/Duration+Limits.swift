extension Duration {
    /// Upper limit of ``sleepable``, and of the duration that ``wholeMilliseconds`` converts: about 31 years.
    package static let longest = Duration.seconds(1_000_000_000)

    /// The duration within zero and about 31 years.
    ///
    /// `Task.sleep` traps for durations that do not fit into 64 bits of nanoseconds (Swift 6.3), so every duration that an
    /// application or a server chooses is limited before a task sleeps for it, or before it is added to a time.
    package var sleepable: Duration { min(max(self, .zero), Self.longest) }

    /// The duration in milliseconds, rounded up, within zero and the largest timeout of poll(2), about 24 days.
    package var wholeMilliseconds: CInt {
        let (seconds, attoseconds) = sleepable.components
        let attosecondsPerMillisecond: Int64 = 1_000_000_000_000_000
        let rest = (attoseconds + attosecondsPerMillisecond - 1) / attosecondsPerMillisecond
        return CInt(clamping: seconds * 1000 + rest)
    }
}
