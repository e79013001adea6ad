import ArgumentParser

/// A time that the command line gives, from 0 to some thirty years.
struct Seconds: ExpressibleByArgument {
    /// The number of seconds.
    let value: Double

    var duration: Duration { .seconds(value) }

    init?(argument: String) {
        // Nor a number that is none, which no comparison holds for.
        guard let value = Double(argument), value >= 0, value <= 1e9 else { return nil }
        self.value = value
    }
}
