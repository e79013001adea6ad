import ArgumentParser
import StageModel

/// An event on the command line.
enum RequestArgument: String, ExpressibleByArgument, CaseIterable {
    case install
    case update
    case periodic

    /// The content request of the event.
    var request: ContentRequest {
        switch self {
        case .install: .install
        case .update: .update
        case .periodic: .periodic
        }
    }
}
