public import StageSystem

/// Why a directory could not be served.
@nonexhaustive
public indirect enum OriginError: Error, Equatable, Sendable {
    /// The directory cannot be opened.
    case directory(FileError)

    /// The address cannot be listened on; `reason` is the system's word for why.
    case address(host: String, port: Int, reason: String)
}

extension OriginError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .directory(let error):
            error.description
        case .address(let host, let port, let reason):
            "cannot listen on port \(port) of '\(host)': \(reason)"
        }
    }
}
