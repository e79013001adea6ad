extension Duration {
    /// The duration in one unit, rounded up: `1 second`, `90 seconds`, `2 hours`.
    public var inWords: String {
        let seconds = max(self / .seconds(1), 0)
        let (value, unit) =
            switch seconds {
            case ..<1: (seconds, "second")
            case ...120: (seconds.rounded(.up), "second")
            case ...7200: ((seconds / 60).rounded(.up), "minute")
            default: ((seconds / 3600).rounded(.up), "hour")
            }
        let text = value == value.rounded() ? "\(Int(value))" : "\(value)"
        return "\(text) \(unit)\(value == 1 ? "" : "s")"
    }
}
