import Foundation
import StageControl
import StageModel
import StageTransfer

// Names on disk are independent of property names. Changing one requires a migration.

extension Date: StoredAs {
    /// Whole milliseconds since 1970.
    func storedValue() throws -> Int64 {
        let milliseconds = (timeIntervalSince1970 * 1000).rounded()
        guard let value = Int64(exactly: milliseconds) else {
            throw EncodingError.invalidValue(
                self,
                EncodingError.Context(codingPath: [], debugDescription: "it is too far away")
            )
        }
        return value
    }

    init?(storedValue: Int64) {
        self.init(timeIntervalSince1970: Double(storedValue) / 1000)
    }
}

extension ByteCount: StoredAs {
    func storedValue() -> Int64 { rawValue }

    init?(storedValue: Int64) {
        guard storedValue >= 0 else { return nil }
        self.init(storedValue)
    }
}

extension Data: StoredAs {
    /// Base64 (RFC 4648, section 4).
    func storedValue() -> String { base64EncodedString() }
    init?(storedValue: String) { self.init(base64Encoded: storedValue) }
}

// MARK: - Sessions

extension SessionRights: StoredDocument {
    static let blank = SessionRights(group: .max, groups: [])
    static let storedMembers: [StoredMember<Self>] = [
        .init("group", at: \.group),
        .init("groups", at: \.groups),
    ]
}

extension SessionConfiguration: StoredDocument {
    static let blank = SessionConfiguration()
    static let storedMembers: [StoredMember<Self>] = [
        .init("isDiscretionary", at: \.isDiscretionary),
        .init("allowsExpensiveNetworkAccess", at: \.allowsExpensiveNetworkAccess),
        .init("allowsConstrainedNetworkAccess", at: \.allowsConstrainedNetworkAccess),
        .init("sendsLaunchEvents", at: \.sendsLaunchEvents),
        .init("handler", at: \.handler),
        .init("maximumConnectionsPerHost", at: \.maximumConnectionsPerHost),
        .init("requestTimeout", at: \.requestTimeout),
        .init("resourceTimeout", at: \.resourceTimeout),
        .init("headers", at: \.headers),
        .init("answersChallenges", at: \.answersChallenges),
        .init("minimumTLSVersion", at: \.minimumTLSVersion),
        .init("group", at: \.group),
        .init("isTransient", at: \.isTransient),
        .init("uploadProtocol", at: \.uploadProtocol),
    ]
}

extension LaunchHandler: StoredDocument {
    static let blank = LaunchHandler(command: [])
    static let storedMembers: [StoredMember<Self>] = [
        .init("command", at: \.command),
        .init("directory", at: \.directory),
        .init("environment", at: \.environment),
        .init("version", at: \.version),
    ]
}

// MARK: - Requests

extension UploadResource: StoredDocument {
    static let blank = UploadResource(url: "", uploadProtocol: .plain)
    static let storedMembers: [StoredMember<Self>] = [
        .init("url", at: \.url),
        .init("protocol", at: \.uploadProtocol),
        .init("offset", at: \.offset),
        .init("mayBeComplete", at: \.mayBeComplete),
        .init("isNamedByOrigin", at: \.isNamedByOrigin),
        .init("size", at: \.size),
        .init("entityTags", at: \.entityTags),
    ]
}

extension UploadParts: StoredDocument {
    static let blank = UploadParts(parts: [], completionURL: "")
    static let storedMembers: [StoredMember<Self>] = [
        .init("urls", at: \.storedURLs),
        .init("sizes", at: \.storedSizes),
        .init("completion", at: \.completionURL),
        .init("abort", at: \.abortURL),
    ]

    /// URLs of the parts, decoded before their sizes.
    private var storedURLs: [String] {
        get { parts.map(\.url) }
        set { parts = newValue.map { Part(url: $0, size: .zero) } }
    }

    /// Sizes of the parts.
    ///
    /// If their number does not match, no parts remain, and the upload fails.
    private var storedSizes: [Int64] {
        get { parts.map(\.size.rawValue) }
        set {
            let isWhole = newValue.count == parts.count
            parts =
                isWhole ? zip(parts, newValue).map { Part(url: $0.url, size: ByteCount($1)) } : []
        }
    }
}

extension UploadProtocol: StoredByName {
    var storedName: String? {
        switch self {
        case .plain: "plain"
        case .resumable: "resumable"
        case .tus: "tus"
        case .presignedParts: "presignedParts"
        }
    }
}

extension TransferRequest: StoredDocument {
    static let blank = TransferRequest(token: "", kind: .download, url: "")
    static let storedMembers: [StoredMember<Self>] = [
        .init("token", at: \.token),
        .init("kind", at: \.kind),
        .init("url", at: \.url),
        .init("staging", at: \.staging),
        .init("mirrors", at: \.mirrors),
        .init("allowedDomains", at: \.allowedDomains),
        .init("method", at: \.method),
        .init("headers", at: \.headers),
        .init("size", at: \.size),
        .init("sha256", at: \.sha256),
        .init("file", at: \.file),
        .init("earliestBegin", at: \.earliestBegin),
        .init("expectedToReceive", at: \.expectedToReceive),
        .init("expectedToSend", at: \.expectedToSend),
        .init("description", at: \.description),
        .init("priority", at: \.priority),
        .init("isPromoted", at: \.isPromoted),
        .init("isSuspended", at: \.isSuspended),
        .init("allowsExpensiveNetworkAccess", at: \.allowsExpensiveNetworkAccess),
        .init("allowsConstrainedNetworkAccess", at: \.allowsConstrainedNetworkAccess),
        .init("resumeToken", at: \.resumeToken),
        .init("acceptsErrorResponses", at: \.acceptsErrorResponses),
        .init("ignoresChallenges", at: \.ignoresChallenges),
        .init("hasChallengeCredential", at: \.hasChallengeCredential),
        .init("isIdempotent", at: \.isIdempotent),
        .init("failsWithoutRetry", at: \.failsWithoutRetry),
        .init("parts", at: \.parts),
    ]
}

extension TransferRequest.Kind: StoredByName {
    var storedName: String? {
        switch self {
        case .download: "download"
        case .upload: "upload"
        case .staging: "staging"
        }
    }
}

extension StagingJob: StoredDocument {
    static let blank = StagingJob()
    static let storedMembers: [StoredMember<Self>] = [
        .init("application", at: \.application),
        .init("manifests", at: \.manifests),
        .init("container", at: \.container),
        .init("applicationVersion", at: \.applicationVersion),
        .init("packs", at: \.packs),
        .init("isRepair", at: \.isRepair),
        .init("event", at: \.event),
        .init("isEssentialOnly", at: \.isEssentialOnly),
        .init("conditions", at: \.conditions),
        .init("environment", at: \.environment),
    ]
}

extension UpdateConditions: StoredDocument {
    static let blank = UpdateConditions()
    static let storedMembers: [StoredMember<Self>] = [
        .init("requiresExternalPower", at: \.requiresExternalPower),
        .init("allowsExpensiveNetworkAccess", at: \.allowsExpensiveNetworkAccess),
        .init("allowsConstrainedNetworkAccess", at: \.allowsConstrainedNetworkAccess),
    ]
}

// MARK: - Events

/// Event without its sequence number and task, which are columns, and without members of non-durable events.
extension SessionEvent: StoredDocument {
    static let blank = SessionEvent(.failed, time: .distantPast)
    static let storedMembers: [StoredMember<Self>] = [
        .init("kind", at: \.kind),
        .init("time", at: \.time),
        .init("bytesReceived", at: \.bytesReceived),
        .init("bytesSent", at: \.bytesSent),
        .init("bytesExpected", at: \.bytesExpected),
        .init("response", at: \.response),
        .init("body", at: \.body),
        .init("metrics", at: \.metrics),
        .init("failure", at: \.failure),
        .init("challenge", at: \.challenge),
        .init("resumeToken", at: \.resumeToken),
    ]
}

extension SessionEvent.Kind: StoredByName {
    var storedName: String? {
        switch self {
        case .challenged: "challenged"
        case .completed: "completed"
        case .failed: "failed"
        case .cancelled: "cancelled"
        case .attached, .heartbeat, .finishedEvents, .resumed, .progress, .changed, .invalidated:
            nil
        }
    }
}

extension TransferResponse: StoredDocument {
    static let blank = TransferResponse(url: "", status: 0, headers: [])
    static let storedMembers: [StoredMember<Self>] = [
        .init("url", at: \.url),
        .init("status", at: \.status),
        .init("headers", at: \.headers),
    ]
}

extension TransferFailure: StoredDocument {
    static let blank = TransferFailure(.lost, reason: "")
    static let storedMembers: [StoredMember<Self>] = [
        .init("kind", at: \.kind),
        .init("reason", at: \.reason),
        .init("status", at: \.status),
        .init("resumeToken", at: \.resumeToken),
    ]
}

extension TransferFailure.Kind: StoredByName {
    var storedName: String? {
        switch self {
        case .unreachable: "unreachable"
        case .timedOut: "timedOut"
        case .refused: "refused"
        case .wrongContent: "wrongContent"
        case .untrusted: "untrusted"
        case .unacceptable: "unacceptable"
        case .storage: "storage"
        case .cannotResume: "cannotResume"
        case .lost: "lost"
        // Only a newer daemon sends it.
        case .other: nil
        }
    }
}

extension TransferMetrics: StoredDocument {
    static let blank = TransferMetrics(ended: .distantPast)
    static let storedMembers: [StoredMember<Self>] = [
        .init("started", at: \.started),
        .init("ended", at: \.ended),
        .init("attempts", at: \.attempts),
        .init("bytesReceived", at: \.bytesReceived),
        .init("bytesSent", at: \.bytesSent),
        .init("redirects", at: \.redirects),
        .init("attempt", at: \.attempt),
    ]
}

extension AttemptMetrics: StoredDocument {
    static let blank = AttemptMetrics()
    static let storedMembers: [StoredMember<Self>] = [
        .init("fetchStart", at: \.fetchStart),
        .init("responseStart", at: \.responseStart),
        .init("responseEnd", at: \.responseEnd),
        .init("nameLookup", at: \.nameLookup),
        .init("connect", at: \.connect),
        .init("secureConnect", at: \.secureConnect),
        .init("requestStart", at: \.requestStart),
        .init("firstByte", at: \.firstByte),
        .init("networkProtocol", at: \.networkProtocol),
        .init("remoteAddress", at: \.remoteAddress),
        .init("remotePort", at: \.remotePort),
        .init("localAddress", at: \.localAddress),
        .init("localPort", at: \.localPort),
        .init("isReusedConnection", at: \.isReusedConnection),
        .init("requestHeaderBytes", at: \.requestHeaderBytes),
        .init("responseHeaderBytes", at: \.responseHeaderBytes),
        .init("bytesReceived", at: \.bytesReceived),
        .init("bytesSent", at: \.bytesSent),
    ]
}
