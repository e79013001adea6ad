import StageModel

/// Why content is asked for.
public enum BAContentRequest: Int, Hashable, Sendable {
    /// The application was installed.
    case install = 1
    /// The application was updated.
    case update = 2
    /// A check at a time of the system's choosing.
    case periodic = 3
    /// The user's languages have changed; does not occur, since packs have no languages here.
    case languageChange = 4

    init(_ request: ContentRequest) {
        self =
            switch request {
            case .install: .install
            case .update: .update
            case .periodic: .periodic
            }
    }
}
