public import StageModel
public import StageSystem

/// Why a downloader extension gave no answer that counts; `program` is the path of the extension.
@nonexhaustive
public indirect enum ExtensionError: Error, Equatable, Sendable {
    /// It could not be started, or what it needs could not be made.
    case notStarted(program: String, FileError)
    /// It did not end in time.
    case deadlineExceeded(program: String, Duration, standardError: String)
    /// It ended without success; `standardError` is the last of what it said.
    case ended(program: String, ChildProcess.Ending, standardError: String)
    /// It wrote more than is read.
    case tooMuchOutput(program: String, limit: ByteCount)
    /// What it wrote is no answer; the fault names the member.
    case invalidAnswer(program: String, ManifestError)
    /// It asks for a download that it may not ask for.
    case notAllowed(program: String, download: String, ExtensionRefusal)
    /// It was killed, or not started, since nearly nothing is left of the file system that it writes to.
    case diskNearlyFull(program: String)
    /// It was not started as root, since the kernel can take only this much from it.
    case notConfined(program: String, Sandbox.Restrictions)
    /// The task was cancelled.
    case cancelled(program: String)
}

/// Why a downloader extension may not have what it asks for.
@nonexhaustive
public indirect enum ExtensionRefusal: Error, Equatable, Sendable {
    /// Another download of the answer has the same identifier, or is the same pack.
    case duplicate
    /// The manifest has no such pack.
    case unknownPack
    /// Only requests for an installation or an update may have essential downloads.
    case essential(ContentRequest)
    /// The URL is neither an https URL nor an http URL of this machine.
    case insecure(url: String)
    /// It is for another group than the application's.
    case otherGroup(expected: ApplicationGroupID, found: ApplicationGroupID)
    /// A file of so many bytes cannot be downloaded.
    case fileSize(Int)
    /// The name of a field of the request's head, or its value, is none, or is the host's to set.
    case header(name: String)
    /// The answer has more downloads than are taken.
    case tooMany(limit: Int, found: Int)
}

extension ExtensionRefusal: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
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
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .notStarted(let program, let error):
            "downloader extension '\(program)' did not start: \(error)"
        case .deadlineExceeded(let program, let deadline, let text):
            "downloader extension '\(program)' did not end within \(deadline)\(Self.quote(text))"
        case .ended(let program, .exited(let status), let text):
            "downloader extension '\(program)' ended with status \(status)\(Self.quote(text))"
        case .ended(let program, .signalled(let signal), let text):
            "downloader extension '\(program)' was ended by signal \(signal)\(Self.quote(text))"
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

    /// The last line that the extension said, where it said something.
    private static func quote(_ text: String) -> String {
        guard let line = text.split(whereSeparator: \.isNewline).last else { return "" }
        return ": \(String(line).forDisplay())"
    }
}
