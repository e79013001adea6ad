public import StageModel

/// The speed at which bytes come in, smoothed over the last seconds.
public struct TransferRate: Equatable, Sendable {
    private struct Sample: Equatable, Sendable {
        var time: Double
        var bytes: Int64
    }

    private var samples: [Sample] = []

    /// Creates a rate of which nothing is known.
    public init() {}

    /// Bytes per second, or `nil` as long as too little is known.
    public var bytesPerSecond: Double? {
        guard let first = samples.first, let last = samples.last, last.time - first.time > 0.3
        else { return nil }
        return max(0, Double(last.bytes - first.bytes) / (last.time - first.time))
    }

    /// Takes note that `bytes` had come in at `time`, in seconds.
    public mutating func sample(_ bytes: ByteCount, at time: Double) {
        samples.append(Sample(time: time, bytes: bytes.rawValue))
        samples.removeAll { $0.time < time - 4 }
    }
}
