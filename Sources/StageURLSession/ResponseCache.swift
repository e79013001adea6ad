import Foundation
import FoundationNetworking
import StageModel
import Synchronization

/// Rules of a private HTTP cache (RFC 9111), on top of Foundation's `URLCache`.
///
/// Responses with a `Vary` field are not stored, since the cache does not store request fields to compare.
enum ResponseCache {
    /// Decision about a request.
    enum Decision {
        /// Respond from the cache.
        case use(CachedURLResponse)
        /// Validate the cached response by a conditional request with these fields.
        case revalidate(CachedURLResponse, fields: [String])
        /// Send the request to the server.
        case load
        /// Fail: there is no cached response, and the policy forbids a request.
        case fail
    }

    /// Decides about a request, given its cached response.
    static func decide(
        _ request: URLRequest,
        policy: URLRequest.CachePolicy,
        cached: CachedURLResponse?,
        now: Date
    ) -> Decision {
        guard request.httpMethod ?? "GET" == "GET" else {
            return policy == .returnCacheDataDontLoad ? .fail : .load
        }
        switch policy {
        case .reloadIgnoringLocalCacheData, .reloadIgnoringLocalAndRemoteCacheData: return .load
        case .returnCacheDataElseLoad: return cached.map { .use($0) } ?? .load
        case .returnCacheDataDontLoad: return cached.map { .use($0) } ?? .fail
        default: break
        }
        guard let cached, let response = cached.response as? HTTPURLResponse else { return .load }
        let asked = Directives(request.value(forHTTPHeaderField: "Cache-Control"))
        if asked.has("no-store") || request.isRangeOrConditional { return .load }
        let said = Directives(response.value(forHTTPHeaderField: "Cache-Control"))
        // Without validation, a request with credentials uses only a response that shared caches may store.
        let isForeign = request.hasCredentials && !said.allowsSharing
        let mustAsk =
            policy == .reloadRevalidatingCacheData || said.has("no-cache") || asked.has("no-cache")
            || asked.seconds("max-age") == 0 || isForeign
        if !mustAsk, let age = age(of: cached, response: response, now: now),
            let lifetime = lifetime(of: response, said),
            age < min(lifetime, asked.seconds("max-age") ?? .infinity)
        {
            return .use(cached)
        }
        let fields = [
            response.value(forHTTPHeaderField: "ETag").map { "If-None-Match: \($0)" },
            response.value(forHTTPHeaderField: "Last-Modified").map { "If-Modified-Since: \($0)" },
        ]
        .compactMap { $0 }
        return fields.isEmpty ? .load : .revalidate(cached, fields: fields)
    }

    /// Locked while a cache is changed: `URLCache` fails later if it stores two responses for one URL.
    private static let changes = Mutex(())

    /// Returns the cached response to a request.
    ///
    /// Foundation's cache on Linux compares only host, port and path.
    static func answer(_ cache: URLCache?, to request: URLRequest) -> CachedURLResponse? {
        guard let found = cache?.cachedResponse(for: request),
            let url = found.response.url?.absoluteURL.absoluteString,
            url == request.url?.cacheKey
        else { return nil }
        return found
    }

    /// Stores the response to a request that was sent at a date.
    static func keep(
        _ answer: CachedURLResponse,
        to request: URLRequest,
        sent: Date,
        in cache: URLCache
    ) {
        var info = answer.userInfo ?? [:]
        if let response = answer.response as? HTTPURLResponse {
            let generated = generationDate(of: response, requested: sent)
            info[generationKey] = "\(generated.timeIntervalSince1970)"
        }
        let dated = CachedURLResponse(
            response: answer.response,
            data: answer.data,
            userInfo: info,
            storagePolicy: answer.storagePolicy
        )
        changes.withLock { _ in
            cache.removeCachedResponse(for: request)
            cache.storeCachedResponse(dated, for: request)
        }
    }

    /// Removes the response to a request, after another request has changed the resource (RFC 9111, section 4.4).
    static func forget(_ request: URLRequest, in cache: URLCache) {
        changes.withLock { _ in cache.removeCachedResponse(for: request) }
    }

    /// Returns whether a response may be stored.
    static func mayKeep(_ response: HTTPURLResponse, to request: URLRequest) -> Bool {
        let asked = Directives(request.value(forHTTPHeaderField: "Cache-Control"))
        let said = Directives(response.value(forHTTPHeaderField: "Cache-Control"))
        guard request.httpMethod ?? "GET" == "GET", !asked.has("no-store"), !said.has("no-store"),
            !request.isRangeOrConditional
        else { return false }
        // A response to one user's credentials must not be used for another's (RFC 9111, section 3.5).
        guard said.allowsSharing || !request.hasCredentials else { return false }
        let varying = (response.value(forHTTPHeaderField: "Vary") ?? "").split(separator: ",")
            .map { $0.trimmingCharacters(in: .whitespaces).lowercased() }
        guard varying.allSatisfy({ $0 == "accept-encoding" }) else { return false }
        switch response.statusCode {
        case 200, 203:
            return lifetime(of: response, said) != nil
                || response.value(forHTTPHeaderField: "ETag") != nil
                || response.value(forHTTPHeaderField: "Last-Modified") != nil
        case 404, 410: return explicitLifetime(of: response, said) != nil
        default: return false
        }
    }

    /// Returns the head of a cached response, updated with the fields of the response that has validated it (RFC
    /// 9111, section 4.3.4).
    static func refreshed(
        _ response: HTTPURLResponse,
        by confirmation: HTTPURLResponse
    ) -> HTTPURLResponse {
        var fields = response.allHeaderFields as? [String: String] ?? [:]
        for (name, value) in confirmation.allHeaderFields as? [String: String] ?? [:]
        where !["content-length", "content-encoding", "transfer-encoding"]
            .contains(name.lowercased())
        {
            fields = fields.filter { $0.key.lowercased() != name.lowercased() }
            fields[name] = value
        }
        return HTTPURLResponse(
            url: response.url ?? URL(fileURLWithPath: "/"),
            statusCode: response.statusCode,
            httpVersion: "HTTP/1.1",
            headerFields: fields
        ) ?? response
    }

    /// Key, in the `userInfo` of a cached response, for the time when it was generated, in seconds since 1970.
    private static let generationKey = "stagepack.generated"

    /// Returns the earliest plausible time when a response was generated or last validated.
    ///
    /// At that time its age was zero (RFC 9111, section 4.2.3): the `Age` field of an intermediate cache counts, and
    /// so does the time since the request.
    private static func generationDate(of response: HTTPURLResponse, requested: Date) -> Date {
        let age = response.value(forHTTPHeaderField: "Age")?.split(separator: ",").first
            .flatMap { Directives.seconds(in: String($0)) }
        let stated = requested - (age ?? 0)
        return min(date("Date", of: response) ?? requested, stated)
    }

    /// Returns the age of a response in seconds (RFC 9111, section 4.2.3); `nil` if unknown.
    private static func age(
        of cached: CachedURLResponse,
        response: HTTPURLResponse,
        now: Date
    ) -> TimeInterval? {
        let kept = (cached.userInfo?[generationKey] as? String).flatMap { TimeInterval($0) }
            .map { Date(timeIntervalSince1970: $0) }
        // The application has stored it itself.
        let generated =
            kept ?? date("Date", of: response).map { generationDate(of: response, requested: $0) }
        // After the clock was set back, the age is unknown.
        guard let generated, generated <= now else { return nil }
        return now.timeIntervalSince(generated)
    }

    /// Returns the freshness lifetime of a response in seconds (RFC 9111, sections 4.2.1 and 4.2.2); `nil` if
    /// unknown.
    private static func lifetime(
        of response: HTTPURLResponse,
        _ said: Directives
    ) -> TimeInterval? {
        if let explicit = explicitLifetime(of: response, said) { return explicit }
        guard let date = self.date("Date", of: response),
            let changed = self.date("Last-Modified", of: response), changed < date
        else { return nil }
        // A tenth of the time since the last change, as the RFC suggests.
        return date.timeIntervalSince(changed) / 10
    }

    private static func explicitLifetime(
        of response: HTTPURLResponse,
        _ said: Directives
    ) -> TimeInterval? {
        if let seconds = said.seconds("max-age") { return seconds }
        guard response.value(forHTTPHeaderField: "Expires") != nil else { return nil }
        guard let date = self.date("Date", of: response),
            let end = self.date("Expires", of: response)
        else { return 0 }
        return max(end.timeIntervalSince(date), 0)
    }

    private static func date(_ name: String, of response: HTTPURLResponse) -> Date? {
        let now = HTTPDate(seconds: Int64(Date.now.timeIntervalSince1970))
        return response.value(forHTTPHeaderField: name).flatMap { HTTPDate($0, readAt: now) }
            .map { Date(timeIntervalSince1970: TimeInterval($0.seconds)) }
    }

    /// The directives of a `Cache-Control` field.
    private struct Directives {
        private var values: [String: String] = [:]

        init(_ field: String?) {
            for part in (field ?? "").split(separator: ",") {
                let pair = part.split(separator: "=", maxSplits: 1)
                    .map { $0.trimmingCharacters(in: .whitespaces) }
                guard let name = pair.first else { continue }
                values[name.lowercased()] =
                    pair.count > 1 ? pair[1].trimmingCharacters(in: ["\""]) : ""
            }
        }

        func has(_ name: String) -> Bool { values[name] != nil }

        /// `true` if a cache may use the response to one user's credentials for another user (RFC 9111, section 3.5).
        ///
        /// `must-revalidate` alone, which the RFC accepts too, does not suffice: servers send it with personal content.
        var allowsSharing: Bool { !has("private") && (has("public") || has("s-maxage")) }

        /// Returns the number of a directive; 0 if it has none, so that the response counts as stale (RFC 9111,
        /// section 4.2.1).
        func seconds(_ name: String) -> TimeInterval? {
            values[name].map { Self.seconds(in: $0) ?? 0 }
        }

        /// Parses a number of seconds; returns 2³¹ for a larger number (RFC 9111, section 1.2.2).
        static func seconds(in text: String) -> TimeInterval? {
            let digits = text.trimmingCharacters(in: .whitespaces)
            guard !digits.isEmpty, digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
                return nil
            }
            return TimeInterval(min(Int64(digits) ?? .max, 1 << 31))
        }
    }
}

extension URL {
    /// The URL in the form that responses have: without user name, password and fragment.
    fileprivate var cacheKey: String? {
        guard var parts = URLComponents(url: absoluteURL, resolvingAgainstBaseURL: true) else {
            return nil
        }
        (parts.user, parts.password, parts.fragment) = (nil, nil, nil)
        return parts.string
    }
}

extension URLRequest {
    /// `true` if the request carries credentials of a user, in a field or in its URL.
    fileprivate var hasCredentials: Bool {
        value(forHTTPHeaderField: "Authorization") != nil
            || url.map { URLReference($0.absoluteURL.absoluteString).hasUser } ?? false
    }

    /// `true` if the request asks for a range, or is conditional, by its own header fields.
    fileprivate var isRangeOrConditional: Bool {
        (allHTTPHeaderFields ?? [:]).keys.contains { name in
            let name = name.lowercased()
            return name == "range" || name.hasPrefix("if-")
        }
    }
}
