package import StageSystem

/// Error of serving a directory.
@nonexhaustive
package indirect enum OriginError: Error, Equatable, Sendable {
    /// The directory cannot be opened.
    case directory(FileError)

    /// The origin cannot listen on the address; `reason` is the system's message.
    case address(host: String, port: Int, reason: String)
    /// The origin cannot listen at the host, on any port: its name is unknown, or another machine has its address. `reason` is a
    /// fragment.
    case host(String, reason: String)
}

extension OriginError: CustomStringConvertible {
    /// The reason, as a sentence fragment for people.
    package var description: String {
        switch self {
        case .directory(let error):
            error.description
        case .address(let host, let port, let reason):
            "cannot listen on port \(port) of '\(host)': \(reason)"
        case .host(let host, let reason):
            "cannot listen at '\(host)': \(reason)"
        }
    }
}
