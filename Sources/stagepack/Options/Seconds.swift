import ArgumentParser

/// A duration on the command line, from 0 to about 30 years.
struct Seconds: ExpressibleByArgument {
    /// The number of seconds.
    let value: Double

    var duration: Duration { .seconds(value) }

    init?(argument: String) {
        // NaN is refused, too, because every comparison with it is false.
        guard let value = Double(argument), value >= 0, value <= 1e9 else { return nil }
        self.value = value
    }
}
