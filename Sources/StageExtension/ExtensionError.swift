public import StageModel
public import StageSystem

/// Error of running a downloader extension; `program` is its path.
@nonexhaustive
public indirect enum ExtensionError: Error, Equatable, Sendable {
    /// The extension could not be started, or its scratch folder could not be created.
    case notStarted(program: String, FileError)
    /// The extension exceeded its deadline.
    case deadlineExceeded(program: String, Duration, standardError: String)
    /// The extension exited with a nonzero status, or a signal killed it; `standardError` is the end of its standard error.
    case ended(program: String, ChildProcess.Ending, standardError: String)
    /// The extension wrote more output than permitted.
    case tooMuchOutput(program: String, limit: ByteCount)
    /// The output is not a valid answer; the error names the member.
    case invalidAnswer(program: String, ManifestError)
    /// The extension requests a download that it may not have.
    case notAllowed(program: String, download: String, ExtensionRefusal)
    /// The extension was killed or not started, since the file system that it writes to is nearly full.
    case diskNearlyFull(program: String)
    /// The extension was not started as root, since the kernel supports only these restrictions.
    case notConfined(program: String, Sandbox.Restrictions)
    /// The task was cancelled.
    case cancelled(program: String)
}

/// Reason why a requested download is refused.
@nonexhaustive
public indirect enum ExtensionRefusal: Error, Equatable, Sendable {
    /// Another download of the answer has the same identifier or is the same pack.
    case duplicate
    /// The manifest does not contain the pack.
    case unknownPack
    /// Only requests for an installation or an update may contain essential downloads.
    case essential(ContentRequest)
    /// The URL is neither an https URL nor an http URL of this machine.
    case insecure(url: String)
    /// The download belongs to another application group.
    case otherGroup(expected: ApplicationGroupID, found: ApplicationGroupID)
    /// The file size is not positive.
    case fileSize(Int)
    /// The header field is invalid, or reserved for the host.
    case header(name: String)
    /// The answer contains too many downloads.
    case tooMany(limit: Int, found: Int)
}

extension ExtensionRefusal: CustomStringConvertible {
    /// The reason, as a sentence fragment for people.
    public var description: String {
        switch self {
        case .duplicate:
            "expected an identifier of its own, found that of another download"
        case .unknownPack:
            "the manifest has no such pack"
        case .essential(let request):
            "nothing is essential in a request '\(request.rawValue)'"
        case .insecure(let url):
            "expected an https URL, found '\(url.forDisplay())'"
        case .otherGroup(let expected, let found):
            "expected application group '\(expected)', found '\(found)'"
        case .fileSize(let size):
            "expected a file size of 1 byte or more, found \(size)"
        case .header(let name):
            "the header '\(name.forDisplay(atMost: 60))' cannot be set"
        case .tooMany(let limit, let found):
            "expected at most \(limit.quantity(of: "download")), found \(found)"
        }
    }
}

extension ExtensionError: CustomStringConvertible {
    /// The reason, as a sentence fragment for people.
    public var description: String {
        switch self {
        case .notStarted(let program, let error):
            "downloader extension '\(program)' did not start: \(error)"
        case .deadlineExceeded(let program, let deadline, let text):
            "downloader extension '\(program)' did not end within \(deadline.inWords)\(Self.quote(text))"
        case .ended(let program, .exited(let status), let text):
            "downloader extension '\(program)' ended with status \(status)\(Self.quote(text))"
        case .ended(let program, .signalled(let signal), let text):
            "downloader extension '\(program)' was ended by signal \(signal)\(Self.quote(text))"
        case .ended(let program, .unknown, let text):
            "downloader extension '\(program)' ended with an unknown status; this process may "
                + "ignore SIGCHLD\(Self.quote(text))"
        case .tooMuchOutput(let program, let limit):
            "downloader extension '\(program)' wrote more than \(limit.rawValue.quantity(of: "byte"))"
        case .invalidAnswer(let program, let error):
            "downloader extension '\(program)' gave no answer that is valid: \(error)"
        case .notAllowed(let program, let download, let refusal):
            "downloader extension '\(program)' may not have "
                + "'\(download.forDisplay(atMost: 128))': \(refusal)"
        case .diskNearlyFull(let program):
            "downloader extension '\(program)' was ended: the file system that it writes to is nearly full"
        case .notConfined(let program, let restrictions):
            "downloader extension '\(program)' was not started as root: this kernel does not confine "
                + (restrictions.files ? "its system calls (seccomp)" : "its files (Landlock)")
        case .cancelled(let program):
            "downloader extension '\(program)' was interrupted"
        }
    }

    /// Returns the last line of the extension's standard error with a colon, or an empty string.
    private static func quote(_ text: String) -> String {
        guard let line = text.split(whereSeparator: \.isNewline).last else { return "" }
        return ": \(String(line).forDisplay())"
    }
}
