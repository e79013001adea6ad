import StageModel

/// Why content is asked for.
///
/// Apple's request for a change of language does not occur.
public enum BAContentRequest: Int, Hashable, Sendable {
    /// The application was installed.
    case install = 1
    /// The application was updated.
    case update = 2
    /// A check at a time of the system's choosing.
    case periodic = 3

    init(_ request: ContentRequest) {
        self =
            switch request {
            case .install: .install
            case .update: .update
            case .periodic: .periodic
            }
    }
}
