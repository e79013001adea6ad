package import StageModel

/// The speed of a transfer, averaged over the last four seconds.
package struct TransferRate: Equatable, Sendable {
    private struct Sample: Equatable, Sendable {
        var time: Double
        var bytes: Int64
    }

    private var samples: [Sample] = []

    /// Creates a rate without samples.
    package init() {}

    /// The speed in bytes per second; `nil` until the samples span more than 0.3 seconds.
    package var bytesPerSecond: Double? {
        guard let first = samples.first, let last = samples.last, last.time - first.time > 0.3
        else { return nil }
        return max(0, Double(last.bytes - first.bytes) / (last.time - first.time))
    }

    /// Adds a sample: the bytes received in total until `time`, in seconds.
    package mutating func sample(_ bytes: ByteCount, at time: Double) {
        samples.append(Sample(time: time, bytes: bytes.rawValue))
        samples.removeAll { $0.time < time - 4 }
    }
}
